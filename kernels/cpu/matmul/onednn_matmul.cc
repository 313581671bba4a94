#include "kernels/cpu/matmul/onednn_matmul.h"

#include <cstring>
#include <memory>
#include <unordered_map>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "dnnl.hpp"
#include "kernels/base/alternate_stack.h"
#include "kernels/cpu/vector/scratch.h"

// OpenMP's own header needs the OpenMP compile flag.
extern "C" void omp_set_num_threads(int num_threads);

namespace tandem::kernels {

namespace {

using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;

dnnl::memory::data_type TypeOf(DType dtype) {
  return dtype == DType::BF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

struct ShapeHash {
  size_t operator()(const MatmulShape& s) const {
    return absl::HashOf(s.m, s.n, s.k, s.operand, s.result, s.transpose_a, s.panels, s.bias,
                        s.accumulate);
  }
};

// A primitive with its memory handles. Each run sets the handles' pointers first.
struct Matmul {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
  dnnl::memory a, b, bias, c, scratchpad;
  size_t scratch_bytes = 0;
  std::unordered_map<int, dnnl::memory> arguments;
};

// Returns an empty description if oneDNN has no such product.
dnnl::matmul::primitive_desc Describe(const MatmulShape& s, const dnnl::engine& engine) {
  const Tag panels = s.operand == DType::BF16 ? Tag::BA16a64b2a : Tag::BA16a64b;
  const dnnl::memory::desc a({s.m, s.k}, TypeOf(s.operand), s.transpose_a ? Tag::ba : Tag::ab);
  const dnnl::memory::desc b({s.k, s.n}, TypeOf(s.operand), s.panels ? panels : Tag::ab);
  const dnnl::memory::desc c({s.m, s.n}, TypeOf(s.result), Dims{s.n, 1});
  const dnnl::memory::desc bias({1, s.n}, TypeOf(DType::F32), Dims{s.n, 1});
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops post_ops;
    post_ops.append_sum(1.0f);
    attributes.set_post_ops(post_ops);
  }
  const dnnl::matmul::desc product =
      s.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  return dnnl::matmul::primitive_desc(product, attributes, engine, /*allow_empty=*/true);
}

bool HasPanelKernel(DType operand) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const MatmulShape shape{.m = 64, .n = 64, .k = 64, .operand = operand, .panels = true};
  const dnnl::matmul::primitive_desc description = Describe(shape, engine);
  return description && std::strncmp(description.impl_info_str(), "brg", 3) == 0;
}

class MatmulCache {
 public:
  MatmulCache() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    omp_set_num_threads(1);
    EnsureAlternateStack();
  }

  Matmul& Get(const MatmulShape& shape) {
    const auto found = matmuls_.find(shape);
    if (found != matmuls_.end()) return *found->second;
    if (matmuls_.size() >= kMaxMatmuls) matmuls_.clear();
    return *(matmuls_[shape] = Make(shape));
  }
  dnnl::stream& stream() { return stream_; }

 private:
  // Shapes usually repeat; the limit is for jobs whose shapes do not.
  static constexpr size_t kMaxMatmuls = 2048;

  std::unique_ptr<Matmul> Make(const MatmulShape& s) const {
    auto made = std::make_unique<Matmul>();
    made->description = Describe(s, engine_);
    made->primitive = dnnl::matmul(made->description);
    made->a = dnnl::memory(made->description.src_desc(), engine_, nullptr);
    made->b = dnnl::memory(made->description.weights_desc(), engine_, nullptr);
    made->c = dnnl::memory(made->description.dst_desc(), engine_, nullptr);
    made->scratchpad = dnnl::memory(made->description.scratchpad_desc(), engine_, nullptr);
    made->scratch_bytes = made->description.scratchpad_desc().get_size();
    made->arguments = {{DNNL_ARG_SRC, made->a},
                       {DNNL_ARG_WEIGHTS, made->b},
                       {DNNL_ARG_DST, made->c},
                       {DNNL_ARG_SCRATCHPAD, made->scratchpad}};
    if (s.bias) {
      made->bias =
          dnnl::memory(made->description.query_md(dnnl::query::weights_md, 1), engine_, nullptr);
      made->arguments[DNNL_ARG_BIAS] = made->bias;
    }
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

bool MatmulTakesPanels(DType operand) {
  static const bool f32 = HasPanelKernel(DType::F32), bf16 = HasPanelKernel(DType::BF16);
  return operand == DType::BF16 ? bf16 : f32;
}

// dnnl.hpp reports errors by exceptions. An error here is a bug, so noexcept ends the process with
// its message.
void OneThreadMatmul(const MatmulShape& shape, const void* a, const void* b, const float* bias,
                     void* c) noexcept {
  MatmulCache& cache = CacheOfThisThread();
  Matmul& matmul = cache.Get(shape);
  matmul.a.set_data_handle(const_cast<void*>(a));
  matmul.b.set_data_handle(const_cast<void*>(b));
  matmul.c.set_data_handle(c);
  if (shape.bias) matmul.bias.set_data_handle(const_cast<float*>(bias));
  matmul.scratchpad.set_data_handle(
      Scratch<char>(ScratchSlot::LIBRARY, static_cast<int64_t>(matmul.scratch_bytes)));
  matmul.primitive.execute(cache.stream(), matmul.arguments);
  cache.stream().wait();
}

const char* MatmulImplementation(const MatmulShape& shape) {
  return CacheOfThisThread().Get(shape).description.impl_info_str();
}

}  // namespace tandem::kernels
