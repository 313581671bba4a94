// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3" (SC'11). A number is a pure function of (seed, operation, step, element). Rank,
// microbatch, packing and thread never matter.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tandem {

// The finaliser of MurmurHash3: a bijection on 64 bits that mixes every bit into every other.
constexpr uint64_t Fmix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

// FNV-1a over the bytes, then mixed: a stable id for a parameter's or an operation's logical name.
constexpr uint64_t StableHash(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return Fmix64(hash);
}

// One stream of random numbers: the job's `seed`, and the `id` of an operation or a parameter.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t id = 0;
};

// Folds the key of a stream to Philox's 64 key bits.
constexpr uint64_t FoldKey(RandomKey key) { return Fmix64(key.seed ^ Fmix64(key.id)); }

using Philox4 = std::array<uint32_t, 4>;

// Four numbers for (step, block). Element e of a stream takes word e % 4 of block e / 4.
constexpr Philox4 PhiloxBlock(uint64_t folded_key, uint64_t step, uint64_t block) {
  uint32_t c0 = static_cast<uint32_t>(block), c1 = static_cast<uint32_t>(block >> 32);
  uint32_t c2 = static_cast<uint32_t>(step), c3 = static_cast<uint32_t>(step >> 32);
  uint32_t k0 = static_cast<uint32_t>(folded_key), k1 = static_cast<uint32_t>(folded_key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0,
                   n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

inline uint32_t RandomBits(RandomKey key, uint64_t step, uint64_t element) {
  return PhiloxBlock(FoldKey(key), step, element / 4)[element % 4];
}

// The random number of dropout for one element: a uniform integer below 65536. A block holds eight:
// element e takes half e % 2 (0 is the lower) of word e % 8 / 2 of block e / 8.
inline uint32_t DropoutBits(RandomKey key, uint64_t step, uint64_t element) {
  const uint32_t word = PhiloxBlock(FoldKey(key), step, element / 8)[element % 8 / 2];
  return element % 2 == 0 ? word & 0xffff : word >> 16;
}

// Dropout drops an element if its DropoutBits are below the threshold: `probability` to the nearest
// 1 / 65536, and never 1.
constexpr uint32_t DropThreshold(double probability) {
  const auto nearest = static_cast<uint32_t>(probability * 65536 + 0.5);
  return nearest < 65535 ? nearest : 65535;
}

// The factor of the kept elements, 1 / (share of kept elements), which preserves the mean.
constexpr double KeepScale(uint32_t threshold) { return 65536.0 / (65536 - threshold); }

// Uniform in [0, n), by multiply-shift of 64 random bits. The bias is below n / 2^64, small enough
// to sample ids.
inline uint64_t RandomBelow(RandomKey key, uint64_t step, uint64_t element, uint64_t n) {
  const Philox4 w = PhiloxBlock(FoldKey(key), step, element);
  const uint64_t bits = (uint64_t{w[1]} << 32) | w[0];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * n) >> 64);
}

// Uniform in (0, 1), never an end point; 24 random bits.
constexpr float UnitFloat(uint32_t bits) {
  return (static_cast<float>(bits >> 8) + 0.5f) * (1.0f / 16777216.0f);
}

// One standard normal number (Box and Muller 1958), in f64; the caller rounds.
inline double RandomNormal(RandomKey key, uint64_t step, uint64_t element) {
  const Philox4 w = PhiloxBlock(FoldKey(key), step, element);
  const double u = (static_cast<double>((uint64_t{w[1]} << 32) | w[0]) + 0.5) * 0x1p-64;
  const double v = static_cast<double>((uint64_t{w[3]} << 32) | w[2]) * 0x1p-64;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586476925 * v);
}

}  // namespace tandem
