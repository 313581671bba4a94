#include "kernels/cuda/kernels.h"
#include "kernels/memory/storage.h"
#include "tests/emulator/emulated_queue.h"

// The emulator's products: loops over host memory that compute what cuBLASLt computes on a device.
namespace tandem::kernels::cuda {

namespace {

// f32 sums in ascending k, then the bias and the old c, then one rounding.
template <class T, class C, class B>
void Multiply(const GemmArgs& args) {
  const int64_t m = args.c.shape[0], n = args.c.shape[1],
                k = args.a.shape[args.transpose_a ? 0 : 1];
  const T *a = args.a.as<T>(), *b = args.b.as<T>();
  const B* bias = args.bias.empty() ? nullptr : args.bias.as<B>();
  const int64_t a_row = args.transpose_a ? 1 : k, a_depth = args.transpose_a ? m : 1;
  const int64_t b_depth = args.transpose_b ? 1 : n, b_column = args.transpose_b ? k : 1;
  for (int64_t i = 0; i < m; ++i) {
    C* row = args.c.as<C>() + i * n;
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t d = 0; d < k; ++d)
        sum += Load(a[i * a_row + d * a_depth]) * Load(b[d * b_depth + j * b_column]);
      if (bias != nullptr) sum += Load(bias[j]);
      if (args.accumulate) sum += Load(row[j]);
      row[j] = Store<C>(sum);
    }
  }
}

}  // namespace

void Gemm(const GemmArgs& args, Stream& stream) {
  if (!stream.status().ok()) return;
  const bool is_f32 = args.a.dtype == DType::F32;
  TANDEM_CHECK(is_f32 || args.a.dtype == DType::BF16)
      << "no product of " << NameOf(args.a.dtype) << " on a CUDA device";
  static_cast<EmulatedQueue*>(stream.queue())->Give([args, is_f32] {
    if (is_f32) return Multiply<float, float, float>(args);
    if (args.c.dtype == DType::F32) return Multiply<BFloat16, float, float>(args);
    if (!args.bias.empty() && args.bias.dtype == DType::BF16)
      return Multiply<BFloat16, BFloat16, BFloat16>(args);
    Multiply<BFloat16, BFloat16, float>(args);
  });
}

void GemmActivate(const GemmArgs& args, const ArrayView& activated, Activation activation,
                  Stream& stream) {
  cuda::Gemm(args, stream);
  cuda::ActivationForward(activated, args.c, activation, stream);
}

}  // namespace tandem::kernels::cuda
