// Loops over all elements of dense arrays: how the element-by-element kernels are written.
#pragma once

#include <cstdint>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/storage.h"
#include "kernels/cpu/vectorise.h"

namespace tandem::kernels {

inline void CheckDense(const ArrayView& output, const ArrayView& input) {
  TANDEM_CHECK_EQ(output.num_elements(), input.num_elements());
  TANDEM_CHECK(output.is_dense() && input.is_dense()) << "shapes " << output.shape << " and " << input.shape;
}

inline void CheckSame(const ArrayView& output, const ArrayView& input) {
  CheckDense(output, input);
  TANDEM_CHECK(output.dtype == input.dtype) << NameOf(output.dtype) << " and " << NameOf(input.dtype);
}

// output[i] = Store(f(i)) over all elements, in parallel. `cost` of one element in additions. Pointers in f may equal the output's.
template <class T, class Function>
void Map(const ArrayView& output, Stream& stream, int64_t cost, const Function& f) {
  T* out = output.as<T>();
  ParallelRows(stream, output.num_elements(), cost, [=](int64_t begin, int64_t end) {
    Vectorised([=] {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) out[i] = Store<T>(f(i));
    });
  });
}

}  // namespace tandem::kernels
