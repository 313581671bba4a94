#include "kernels/cpu/onednn_matmul.h"

#include <memory>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "dnnl.hpp"
#include "kernels/cpu/scratch.h"

extern "C" void omp_set_num_threads(int num_threads);  // OpenMP's own header needs the OpenMP compile flag

namespace tandem::kernels {

namespace {

struct ShapeHash {
  size_t operator()(const MatmulShape& s) const {
    return absl::HashOf(s.m, s.n, s.k, s.transpose_a, s.transpose_b, s.accumulate);
  }
};

// A primitive with its memory handles, whose pointers are set before each run.
struct Matmul {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratchpad;
  std::unordered_map<int, dnnl::memory> arguments;
};

class MatmulCache {
 public:
  MatmulCache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) { omp_set_num_threads(1); }

  Matmul& Get(const MatmulShape& shape) {
    const auto found = matmuls_.find(shape);
    if (found != matmuls_.end()) return *found->second;
    if (matmuls_.size() >= kMaxMatmuls) matmuls_.clear();
    return *(matmuls_[shape] = Make(shape));
  }
  dnnl::stream& stream() { return stream_; }

 private:
  static constexpr size_t kMaxMatmuls = 2048;  // shapes repeat; the bound is for jobs whose shapes do not

  std::unique_ptr<Matmul> Make(const MatmulShape& s) const {
    using Dims = dnnl::memory::dims;
    const auto type = dnnl::memory::data_type::f32;
    const dnnl::memory::desc a({s.m, s.k}, type, s.transpose_a ? Dims{1, s.m} : Dims{s.k, 1});
    const dnnl::memory::desc b({s.k, s.n}, type, s.transpose_b ? Dims{1, s.k} : Dims{s.n, 1});
    const dnnl::memory::desc c({s.m, s.n}, type, Dims{s.n, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops post_ops;
      post_ops.append_sum(1.0f);
      attributes.set_post_ops(post_ops);
    }
    auto made = std::make_unique<Matmul>();
    made->description = dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine_);
    made->primitive = dnnl::matmul(made->description);
    made->a = dnnl::memory(a, engine_, nullptr);
    made->b = dnnl::memory(b, engine_, nullptr);
    made->c = dnnl::memory(c, engine_, nullptr);
    made->scratchpad = dnnl::memory(made->description.scratchpad_desc(), engine_, nullptr);
    made->arguments = {{DNNL_ARG_SRC, made->a},
                       {DNNL_ARG_WEIGHTS, made->b},
                       {DNNL_ARG_DST, made->c},
                       {DNNL_ARG_SCRATCHPAD, made->scratchpad}};
    return made;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  absl::flat_hash_map<MatmulShape, std::unique_ptr<Matmul>, ShapeHash> matmuls_;
};

MatmulCache& CacheOfThisThread() {
  thread_local MatmulCache cache;
  return cache;
}

}  // namespace

// dnnl.hpp reports errors by exceptions; an error here is ours, so noexcept ends the process with its message.
void OneThreadMatmul(const MatmulShape& shape, const float* a, const float* b, float* c) noexcept {
  MatmulCache& cache = CacheOfThisThread();
  Matmul& matmul = cache.Get(shape);
  matmul.a.set_data_handle(const_cast<float*>(a));
  matmul.b.set_data_handle(const_cast<float*>(b));
  matmul.c.set_data_handle(c);
  const size_t scratch_bytes = matmul.description.scratchpad_desc().get_size();
  matmul.scratchpad.set_data_handle(Scratch<char>(ScratchSlot::LIBRARY, static_cast<int64_t>(scratch_bytes)));
  matmul.primitive.execute(cache.stream(), matmul.arguments);
  cache.stream().wait();
}

const char* MatmulImplementation(const MatmulShape& shape) {
  return CacheOfThisThread().Get(shape).description.impl_info_str();
}

}  // namespace tandem::kernels
