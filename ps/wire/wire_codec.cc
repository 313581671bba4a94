#include "ps/wire/wire_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/crc32c.h"
#include "kernels/cpu/vector/vectorise.h"
#include "proto/embedding.pb.h"
#include "ps/wire/rounding_bits.h"
#include "ps/wire/row_codec.h"

namespace tandem::ps {
namespace {

constexpr float kLargestF16 = 65504;
constexpr float kSmallestNormalF16 = 0x1p-14f;  // below this number a unit is 2^-24
constexpr uint32_t kSignBit = 0x80000000, kInfinity = 0x7f800000;
constexpr int kBitsDropped = 13;  // bits of the f32 fraction that f16 lacks
constexpr uint32_t kBiasChange = uint32_t{127 - 15} << 23;

// The storage that equals `format`, for all formats but f16.
RowStorage StorageOf(WireFormat format) {
  switch (format) {
    case WIRE_BF16:
      return STORED_BF16;
    case WIRE_INT8:
      return STORED_INT8;
    default:
      return STORED_F32;
  }
}

inline uint16_t LoadHalf(const char* wire, size_t place) {
  uint16_t half;
  std::memcpy(&half, wire + place * sizeof(half), sizeof(half));
  return half;
}
inline void StoreHalf(uint16_t half, char* wire, size_t place) {
  std::memcpy(wire + place * sizeof(half), &half, sizeof(half));
}

// Zeroes the padding between the bytes and the scale of an int8 row, so that no old memory is sent.
void ClearPadding(WireFormat format, uint32_t dim, char* wire) {
  if (format == WIRE_INT8) std::memset(wire + dim, 0, WireBytes(format, dim) - sizeof(float) - dim);
}

// Branch-free, so that loops vectorise.
inline float FromF16(uint16_t half) {
  const uint32_t size = uint32_t{half & 0x7fffu} << kBitsDropped,
                 sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t normal = size + kBiasChange;
  // A number with exponent 0 has no hidden one. Adds a hidden one with exponent 2^-14 and subtracts
  // 2^-14 again.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - kSmallestNormalF16);
  const uint32_t value =
      half & 0x7c00 ? ((half & 0x7c00) == 0x7c00 ? size | kInfinity : normal) : small;
  return std::bit_cast<float>(value | sign);
}

inline uint16_t WithSign(uint32_t size, float x) {
  return static_cast<uint16_t>(size | (std::bit_cast<uint32_t>(x) & kSignBit) >> 16);
}

inline uint16_t SpecialF16(float size) { return size != size ? 0x7e00 : 0x7c00; }

inline uint16_t NearestF16(float x) {
  const float size = std::fabs(x), finite = size > kLargestF16 ? kLargestF16 : size;
  const uint32_t bits = std::bit_cast<uint32_t>(finite);
  const uint32_t normal = (bits - kBiasChange + 0xfff + (bits >> kBitsDropped & 1)) >> kBitsDropped;
  // Numbers below 2^-14 are added to 2^-1, whose unit is 2^-24. The fraction of the sum is the
  // number of units.
  const uint32_t small = std::bit_cast<uint32_t>(finite + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t value = finite < kSmallestNormalF16 ? small : normal;
  return WithSign((std::bit_cast<uint32_t>(size) >= kInfinity) ? SpecialF16(size) : value, x);
}

// REQUIRES: random < 2^13.
inline uint16_t StochasticF16(float x, uint32_t random) {
  const float size = std::fabs(x), finite = size > kLargestF16 ? kLargestF16 : size;
  const uint32_t normal = (std::bit_cast<uint32_t>(finite) - kBiasChange + random) >> kBitsDropped;
  const auto small = static_cast<uint32_t>(
      static_cast<int32_t>((finite < kSmallestNormalF16 ? finite : 0) * 0x1p24f +
                           static_cast<float>(random) * 0x1p-13f));
  const uint32_t value = finite < kSmallestNormalF16 ? small : normal;
  return WithSign((std::bit_cast<uint32_t>(size) >= kInfinity) ? SpecialF16(size) : value, x);
}

// True if one of `count` units of 16 or 32 bits has all bits of `exponent`.
template <class Unit>
bool AnyHas(Unit exponent, const char* units, size_t count) {
  Unit found = 0;
  kernels::Vectorised([&] {
    Unit any = 0;
    for (size_t i = 0; i < count; ++i) {
      Unit unit;
      std::memcpy(&unit, units + i * sizeof(unit), sizeof(unit));
      any |= static_cast<Unit>((unit & exponent) == exponent);
    }
    found = any;
  });
  return found != 0;
}

}  // namespace

const char* NameOf(WireFormat format) {
  switch (format) {
    case WIRE_BF16:
      return "bf16";
    case WIRE_F16:
      return "f16";
    case WIRE_INT8:
      return "int8";
    default:
      return "f32";
  }
}

size_t WireBytes(WireFormat format, uint32_t dim) {
  return format == WIRE_F16 ? sizeof(uint16_t) * size_t{dim} : StoredBytes(StorageOf(format), dim);
}

bool TravelsAsStored(WireFormat format, RowStorage storage) {
  return format != WIRE_F16 && StorageOf(format) == storage;
}

void DecodeRow(WireFormat format, const char* wire, uint32_t dim, float* row) {
  if (format != WIRE_F16) return DecodeWeights(StorageOf(format), wire, dim, row);
  kernels::Vectorised([=] {
    for (uint32_t i = 0; i < dim; ++i) row[i] = FromF16(LoadHalf(wire, i));
  });
}

void EncodeRow(WireFormat format, const float* row, uint32_t dim, char* wire) {
  if (format != WIRE_F16) {
    ClearPadding(format, dim, wire);
    return EncodeNearest(StorageOf(format), row, dim, wire);
  }
  kernels::Vectorised([=] {
    const float* const from = row;
    char* const to = wire;
    for (uint32_t i = 0, end = dim; i < end; ++i) StoreHalf(NearestF16(from[i]), to, i);
  });
}

void EncodeGradient(WireFormat format, const float* gradient, uint32_t dim, RandomKey key,
                    uint64_t step, char* wire) {
  if (format != WIRE_F16) {
    ClearPadding(format, dim, wire);
    return EncodeStochastic(StorageOf(format), gradient, dim, key, step, wire);
  }
  constexpr uint32_t kColumns = 512;  // columns at a time
  const uint64_t folded = FoldKey(key);
  for (uint32_t begin = 0; begin < dim; begin += kColumns) {
    kernels::Vectorised([=](auto set) {
      const uint32_t count = std::min(dim - begin, kColumns);
      const float* const from = gradient + begin;
      char* const to = wire + size_t{begin} * sizeof(uint16_t);
      uint16_t bits[kColumns];
      RoundingBits<decltype(set)::value>(folded, step, begin, count, bits);
      for (uint32_t i = 0; i < count; ++i)
        StoreHalf(StochasticF16(from[i], bits[i] >> (16 - kBitsDropped)), to, i);
    });
  }
}

void EncodeWithResidual(WireFormat format, const float* gradient, uint32_t dim, float* residual,
                        char* wire) {
  for (uint32_t i = 0; i < dim; ++i) residual[i] += gradient[i];
  EncodeRow(format, residual, dim, wire);
  std::vector<float> sent(dim);
  DecodeRow(format, wire, dim, sent.data());
  for (uint32_t i = 0; i < dim; ++i) {
    const float lost = residual[i] - sent[i];
    residual[i] = std::isfinite(lost) ? lost : 0;
  }
}

bool AllFinite(WireFormat format, const char* wire, size_t num_rows, uint32_t dim) {
  switch (format) {
    case WIRE_BF16:
      return !AnyHas<uint16_t>(0x7f80, wire, num_rows * dim);
    case WIRE_F16:
      return !AnyHas<uint16_t>(0x7c00, wire, num_rows * dim);
    case WIRE_INT8: {
      const size_t row_bytes = WireBytes(format, dim);
      bool finite = true;
      for (size_t row = 0; row < num_rows; ++row) {
        float scale;
        std::memcpy(&scale, wire + (row + 1) * row_bytes - sizeof(scale), sizeof(scale));
        finite &= std::isfinite(scale * -128);  // the largest product possible
      }
      return finite;
    }
    default:
      return !AnyHas<uint32_t>(kInfinity, wire, num_rows * dim);
  }
}

char* EncodeAscending(absl::Span<const uint64_t> ids, size_t max_bytes, char* out) {
  const char* const limit = out + max_bytes;
  uint64_t previous = 0;
  for (const uint64_t id : ids) {
    if (id <= previous || out > limit) return nullptr;
    uint64_t difference = id - previous;
    for (; difference >= 0x80; difference >>= 7) *out++ = static_cast<char>(difference | 0x80);
    *out++ = static_cast<char>(difference);
    previous = id;
  }
  return out > limit ? nullptr : out;
}

absl::Status DecodeAscending(std::string_view* bytes, absl::Span<uint64_t> ids) {
  const auto* next = reinterpret_cast<const unsigned char*>(bytes->data());
  const auto* const end = next + bytes->size();
  uint64_t previous = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    uint64_t difference = 0;
    for (int shift = 0;; shift += 7) {
      if (next == end)
        return absl::InvalidArgumentError(absl::StrCat("ids end after ", i, " of ", ids.size()));
      const uint64_t part = *next & 0x7f;
      if (shift > 63 || part << shift >> shift != part) {
        return absl::InvalidArgumentError(
            absl::StrCat("the difference before id ", i + 1, " is above 2^64 - 1"));
      }
      difference |= part << shift;
      if (*next++ < 0x80) break;
    }
    if (difference == 0) {
      return absl::InvalidArgumentError(
          i == 0 ? std::string("id 0 is padding, never a row")
                 : absl::StrCat("id ", previous,
                                " comes twice in one segment; merge duplicates first"));
    }
    if (difference > ~previous)
      return absl::InvalidArgumentError(absl::StrCat("id ", i + 1, " is above 2^64 - 1"));
    previous += difference;
    ids[i] = previous;
  }
  bytes->remove_prefix(static_cast<size_t>(reinterpret_cast<const char*>(next) - bytes->data()));
  return absl::OkStatus();
}

absl::Status CheckCrc(const uint32_t* said, absl::Span<const std::string_view> pieces,
                      uint64_t sequence, uint32_t trainer) {
  if (said == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("push ", sequence, " of trainer ", trainer, " has no payload checksum"));
  }
  uint32_t crc = 0;
  for (const std::string_view piece : pieces) crc = Crc32c(crc, piece.data(), piece.size());
  if (crc == *said) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("payload checksum of push ", sequence, " of trainer ", trainer, " is ", crc,
                   ", the message says ", *said, ": damaged on its way"));
}

}  // namespace tandem::ps
