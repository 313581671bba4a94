// Transposes tiles of 16 vectors of 16 words in registers, a step of all operand packing for matrix
// products. A word is one f32, or two bf16 that stay together. Inline bodies for Vectorised().
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <cstdint>
#include <cstring>

namespace tandem::kernels {

inline constexpr int64_t kTileWords = 16;
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(64)));

// One step of a transpose: swaps blocks of kWidth lanes between two vectors.
template <int kWidth>
inline void ExchangeWords(Words& a, Words& b) {
  Words low, high;
  for (uint32_t j = 0; j < kTileWords; ++j) {
    low[j] = (j & kWidth) ? kTileWords + j - kWidth : j;
    high[j] = (j & kWidth) ? kTileWords + j : j + kWidth;
  }
  const Words a_before = a;
  a = __builtin_shuffle(a_before, b, low);
  b = __builtin_shuffle(a_before, b, high);
}

template <int kWidth>
inline void ExchangeAllWords(Words (&tile)[kTileWords]) {
#pragma GCC unroll 16
  for (int i = 0; i < kTileWords; ++i) {
    if ((i & kWidth) == 0) ExchangeWords<kWidth>(tile[i], tile[i + kWidth]);
  }
}

inline void TransposeWords(Words (&tile)[kTileWords]) {
  ExchangeAllWords<1>(tile);
  ExchangeAllWords<2>(tile);
  ExchangeAllWords<4>(tile);
  ExchangeAllWords<8>(tile);
}

// Interleaves two vectors of 32 halves (a0 b0 a1 b1 ...): `first` gets lanes 0 .. 15 of both,
// `second` lanes 16 .. 31.
inline void Interleave(const Words& a, const Words& b, Words& first, Words& second) {
  Halves low, high;
  for (uint16_t j = 0; j < 32; ++j) {
    low[j] = static_cast<uint16_t>((j & 1) * 32 + j / 2);
    high[j] = static_cast<uint16_t>((j & 1) * 32 + 16 + j / 2);
  }
  first = (Words)__builtin_shuffle((Halves)a, (Halves)b, low);
  second = (Words)__builtin_shuffle((Halves)a, (Halves)b, high);
}

inline void LoadVector(const void* from, Words& x) { std::memcpy(&x, from, 64); }

// Loads the first num_bytes (at most 64) at `from` and zeros after them.
inline void LoadStart(const void* from, int64_t num_bytes, Words& x) {
  if (num_bytes >= 64) return LoadVector(from, x);
  x = Words{};
  if (num_bytes > 0) std::memcpy(&x, from, static_cast<size_t>(num_bytes));
}

inline void StoreVector(const Words& x, void* to) { std::memcpy(to, &x, 64); }

}  // namespace tandem::kernels
