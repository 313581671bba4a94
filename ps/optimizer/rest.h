// When steps have become too small to change a weight's bits.
// Thread rule: a function of its arguments.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem::ps {

// Whether no weight[i] changes, in f32, by adding or taking away what is at most factor * |value[i]|, computed in f32 with a few
// roundings. Half a unit in the last place of w is at least 2^-25 |w|; the other half of that bound is for the roundings.
inline bool TooSmallToMove(const float* weights, const float* values, uint32_t dim, double factor) {
  for (uint32_t i = 0; i < dim; ++i) {
    if (!(factor * std::fabs(double{values[i]}) <= 0x1p-26 * std::fabs(double{weights[i]}))) return false;
  }
  return true;
}

}  // namespace tandem::ps
