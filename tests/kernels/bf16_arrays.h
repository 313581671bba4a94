// Random BF16 arrays and their exact values in f64.
#pragma once

#include <ostream>

#include "tests/kernels/random_arrays.h"

namespace tandem {

inline std::ostream& operator<<(std::ostream& out, BFloat16 x) { return out << ToFloat(x); }

}  // namespace tandem

namespace tandem::kernels {

inline Array<BFloat16> Rounded(const Array<float>& x) {
  Array<BFloat16> rounded(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) rounded[i] = ToBFloat16(x[i]);
  return rounded;
}

inline Array<double> Exact(const Array<BFloat16>& x) {
  Array<double> exact(x.shape);
  for (int64_t i = 0; i < x.size(); ++i) exact[i] = ToFloat(x[i]);
  return exact;
}

}  // namespace tandem::kernels
