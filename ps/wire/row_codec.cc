#include "ps/wire/row_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/base/bfloat16.h"
#include "kernels/base/check.h"
#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/vectorise.h"
#include "proto/embedding.pb.h"
#include "ps/wire/rounding_bits.h"

namespace tandem::ps {

// The loops below copy captured pointers into locals. Otherwise the compiler must assume that a
// byte store changes a captured pointer.

namespace {

constexpr float kLargest = 127;        // largest int8 weight
constexpr uint32_t kMaxColumns = 512;  // columns at a time; a multiple of kRoundingColumns

// Byte offset of the scale of an int8 row.
size_t ScaleOffset(uint32_t dim) {
  return (dim + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

inline uint16_t StochasticBFloat16(float x, uint16_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((x != x ? bits | 0x400000 : bits + random) >> 16);
}

// Returns 0, which makes all weights 0, if the scale is too small for a finite inverse.
float ScaleOf(const float* weights, uint32_t dim) {
  float largest = 0;
  kernels::Vectorised([&] {
    largest = kernels::LaneMaxOf<float>(dim, [=](int64_t i) { return std::fabs(weights[i]); });
  });
  const float scale = largest / kLargest;
  return scale < 0x1p-126f ? 0 : scale;
}

float InverseOf(float scale) { return scale > 0 ? 1 / scale : 0; }

// Rounds to nearest, ties to even, by adding 1.5 * 2^23: floats above 2^23 have no fraction.
// REQUIRES: |x| <= 127.
inline float RoundedToInteger(float x) { return x + 0x1.8p23f - 0x1.8p23f; }

// For a row with a NaN or an infinity any byte will do, because its scale is not finite either.
inline int8_t ToInt8(float rounded) {
  return static_cast<int8_t>(rounded >= -kLargest ? std::min(rounded, kLargest) : -kLargest);
}

}  // namespace

const char* NameOf(RowStorage storage) {
  switch (storage) {
    case STORED_BF16:
      return "BF16";
    case STORED_INT8:
      return "INT8";
    default:
      return "F32";
  }
}

size_t StoredBytes(RowStorage storage, uint32_t dim) {
  switch (storage) {
    case STORED_BF16:
      return sizeof(BFloat16) * size_t{dim};
    case STORED_INT8:
      return ScaleOffset(dim) + sizeof(float);
    default:
      return sizeof(float) * size_t{dim};
  }
}

void DecodeWeights(RowStorage storage, const char* stored, uint32_t dim, float* weights) {
  if (storage == STORED_BF16) {
    kernels::Vectorised([=] {
      for (uint32_t i = 0; i < dim; ++i) {
        BFloat16 half;
        std::memcpy(&half, stored + size_t{i} * sizeof(half), sizeof(half));
        weights[i] = ToFloat(half);
      }
    });
  } else if (storage == STORED_INT8) {
    const auto* const bytes = reinterpret_cast<const int8_t*>(stored);
    float scale;
    std::memcpy(&scale, stored + ScaleOffset(dim), sizeof(scale));
    kernels::Vectorised([=] {
      for (uint32_t i = 0; i < dim; ++i) weights[i] = scale * static_cast<float>(bytes[i]);
    });
  } else {
    std::memcpy(weights, stored, sizeof(float) * dim);
  }
}

void EncodeNearest(RowStorage storage, const float* weights, uint32_t dim, char* stored) {
  if (storage == STORED_BF16) {
    kernels::Vectorised([=] {
      const float* const from = weights;
      char* const to = stored;
      for (uint32_t i = 0, end = dim; i < end; ++i) {
        const BFloat16 half = ToBFloat16(from[i]);
        std::memcpy(to + size_t{i} * sizeof(half), &half, sizeof(half));
      }
    });
  } else if (storage == STORED_INT8) {
    const float scale = ScaleOf(weights, dim), inverse = InverseOf(scale);
    kernels::Vectorised([=] {
      const float *const from = weights, unit = inverse;
      char* const to = stored;
      for (uint32_t i = 0, end = dim; i < end; ++i)
        to[i] = static_cast<char>(ToInt8(RoundedToInteger(from[i] * unit)));
    });
    std::memcpy(stored + ScaleOffset(dim), &scale, sizeof(scale));
  } else {
    std::memcpy(stored, weights, sizeof(float) * dim);
  }
}

void EncodeStochastic(RowStorage storage, const float* weights, uint32_t dim, RandomKey key,
                      uint64_t step, char* stored) {
  if (storage == STORED_F32) {
    std::memcpy(stored, weights, sizeof(float) * dim);
    return;
  }
  const uint64_t folded = FoldKey(key);
  const bool in_bytes = storage == STORED_INT8;
  const float scale = in_bytes ? ScaleOf(weights, dim) : 0, inverse = InverseOf(scale);
  for (uint32_t begin = 0; begin < dim; begin += kMaxColumns) {
    kernels::Vectorised([=](auto set) {
      const uint32_t count = std::min(dim - begin, kMaxColumns);
      const float *const from = weights + begin, unit = inverse;
      uint16_t bits[kMaxColumns];
      RoundingBits<decltype(set)::value>(folded, step, begin, count, bits);
      if (in_bytes) {
        char* const to = stored + begin;
        for (uint32_t i = 0; i < count; ++i) {
          to[i] = static_cast<char>(
              ToInt8(std::floor(from[i] * unit + static_cast<float>(bits[i]) * 0x1p-16f)));
        }
      } else {
        char* const to = stored + size_t{begin} * sizeof(uint16_t);
        for (uint32_t i = 0; i < count; ++i) {
          const uint16_t half = StochasticBFloat16(from[i], bits[i]);
          std::memcpy(to + size_t{i} * sizeof(half), &half, sizeof(half));
        }
      }
    });
  }
  if (in_bytes) std::memcpy(stored + ScaleOffset(dim), &scale, sizeof(scale));
}

void ForEachStored(RowStorage storage, const char* stored, uint32_t dim,
                   absl::FunctionRef<void(uint32_t, uint32_t)> visit) {
  const auto at = [stored](size_t offset, auto bits) {
    std::memcpy(&bits, stored + offset, sizeof(bits));
    return bits;
  };
  const size_t size = storage == STORED_F32    ? sizeof(float)
                      : storage == STORED_BF16 ? sizeof(BFloat16)
                                               : 1;
  for (uint32_t i = 0; i < dim; ++i) {
    visit(i, size == 4   ? at(4 * size_t{i}, uint32_t{})
             : size == 2 ? at(2 * size_t{i}, uint16_t{})
                         : at(i, uint8_t{}));
  }
  if (storage == STORED_INT8) visit(dim, at(ScaleOffset(dim), uint32_t{}));
}

}  // namespace tandem::ps
