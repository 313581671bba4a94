// bf16, the upper half of an f32: 8 bits of exponent, 7 of mantissa. A storage type; sums and
// products are computed in f32.
// Thread rule: pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

struct BFloat16 {
  uint16_t bits = 0;
};

constexpr float ToFloat(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Bits whose upper half is the bf16 nearest to x, ties to even. A NaN stays a NaN.
constexpr uint32_t RoundedBits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return x != x ? bits | 0x400000 : bits + (0x7fff + ((bits >> 16) & 1));
}

constexpr BFloat16 ToBFloat16(float x) { return {static_cast<uint16_t>(RoundedBits(x) >> 16)}; }

}  // namespace tandem
