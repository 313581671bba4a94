#include "kernels/cast.h"

#include <cstring>

#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cuda/kernels.h"
#include "kernels/memory/kernel_span.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

namespace {

template <class To, class From>
void CastAs(const ArrayView& output, const ArrayView& input, Stream& stream) {
  To* to = output.as<To>();
  const From* from = input.as<From>();
  ParallelRows(stream, output.num_elements(), 1, [&](int64_t begin, int64_t end) {
    Vectorised([=] {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) to[i] = Store<To>(Load(from[i]));
    });
  });
}

}  // namespace

void Cast(const ArrayView& output, const ArrayView& input, Stream& stream) {
  TANDEM_CHECK_EQ(output.num_elements(), input.num_elements());
  TANDEM_CHECK(output.is_dense() && input.is_dense()) << output.shape << " and " << input.shape;
  const KernelSpan span(stream, SpanKind::ELEMENTWISE, "cast", 0,
                        static_cast<double>(output.num_bytes() + input.num_bytes()));
  if (stream.on_cuda()) return cuda::Cast(output, input, stream);
  if (output.dtype == input.dtype) {
    if (output.num_bytes() > 0) std::memcpy(output.data, input.data, output.num_bytes());
    return;
  }
  if (output.dtype == DType::BF16) return CastAs<BFloat16, float>(output, input, stream);
  CastAs<float, BFloat16>(output, input, stream);
}

}  // namespace tandem::kernels
