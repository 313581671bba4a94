// Tells when steps have become too small to change a weight's bits.
// Thread rule: a function of its arguments.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem::ps {

// True if no weights[i] changes in f32 when at most factor * |values[i]| is added or subtracted.
// The change may be computed in f32 with a few roundings. Half a unit in the last place of w is at
// least 2^-25 |w|; the other half of the bound is for the roundings.
inline bool TooSmallToMove(const float* weights, const float* values, uint32_t dim, double factor) {
  for (uint32_t i = 0; i < dim; ++i) {
    if (!(factor * std::fabs(double{values[i]}) <= 0x1p-26 * std::fabs(double{weights[i]})))
      return false;
  }
  return true;
}

}  // namespace tandem::ps
