// Loops over all elements of dense arrays, for the elementwise kernels.
// Thread rule: the stream's thread.
#pragma once

#include <cstdint>

#include "kernels/cpu/vector/parallel.h"
#include "kernels/cpu/vector/strips.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

inline void CheckDense(const ArrayView& output, const ArrayView& input) {
  TANDEM_CHECK_EQ(output.num_elements(), input.num_elements());
  TANDEM_CHECK(output.is_dense() && input.is_dense())
      << "shapes " << output.shape << " and " << input.shape;
}

inline void CheckSame(const ArrayView& output, const ArrayView& input) {
  CheckDense(output, input);
  TANDEM_CHECK(output.dtype == input.dtype)
      << NameOf(output.dtype) << " and " << NameOf(input.dtype);
}

// out[i] = f(inputs[i]...) for i in [0, n), computed in Compute<O> and stored as O. `out` may be an
// input. Inline body for Vectorised().
template <class O, class Function, class... Inputs>
inline void MapRun(int64_t n, O* out, const Function& f, const Inputs*... inputs) {
  InStrips(
      n,
      [=](int64_t begin, int64_t end) {
        int64_t i = begin;
        if constexpr (std::is_same_v<O, BFloat16> && (std::is_same_v<Inputs, BFloat16> && ...)) {
          const int64_t last = end - (end - begin) % 2;
#pragma GCC ivdep
          for (int64_t p = begin / 2; p < last / 2; ++p) {
            BFloat16Pair::Of(f(BFloat16Pair::At(inputs + 2 * p).first()...),
                             f(BFloat16Pair::At(inputs + 2 * p).second()...))
                .Put(out + 2 * p);
          }
          i = last;
        }
#pragma GCC ivdep
        for (; i < end; ++i) out[i] = Store<O>(f(Load(inputs[i])...));
      },
      out, inputs...);
}

// MapRun over all elements of arrays, in parallel. `cost` is the cost of one element, in additions.
template <class O, class Function, class... Inputs>
void Map(const ArrayView& output, Stream& stream, int64_t cost, const Function& f,
         const Inputs*... inputs) {
  O* out = output.as<O>();
  ParallelRows(stream, output.num_elements(), cost, [=](int64_t begin, int64_t end) {
    Vectorised([=] { MapRun(end - begin, out + begin, f, (inputs + begin)...); });
  });
}

}  // namespace tandem::kernels
