// Unsigned 128-bit fixed point with 64 fraction bits, for sums whose result must not depend on
// order. Saturating addition of non-negative numbers is associative and commutative; f64 addition
// is not.
// Thread rule: functions of their arguments.
#pragma once

#include <cmath>

#include "absl/numeric/int128.h"

namespace tandem::ps {

// Converts `value` to fixed point, truncating. 2^64 and more (and NaN) become the largest number.
// REQUIRES: value is not negative.
inline absl::uint128 ToFixedPoint(double value) {
  if (!(value < 0x1p64)) return absl::Uint128Max();
  return absl::uint128(std::ldexp(value, 64));
}

inline double FromFixedPoint(absl::uint128 value) {
  return std::ldexp(static_cast<double>(value), -64);
}

inline absl::uint128 SaturatingAdd(absl::uint128 a, absl::uint128 b) {
  return b > absl::Uint128Max() - a ? absl::Uint128Max() : a + b;
}

}  // namespace tandem::ps
