// Numbers 64-bit ids. The index is an open-addressing table of 1,024 columns; the id's hash chooses
// the column. Columns grow one at a time by a sixteenth, so no insertion pauses for the whole
// index.
// The n-th id of column c has the number n * 1,024 + c, for good.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/random.h"
#include "kernels/cpu/vector/vectorise.h"
#include "kernels/memory/growing_memory.h"

#ifdef TANDEM_VECTOR_COPIES
#include <immintrin.h>
#endif

namespace tandem::ps {

// A column is a run of 64-byte lines of eight slots. The rest of the hash chooses the home line, by
// a product (Lemire, "Fast Random Integer Generation in an Interval", 2019). An id lies in its home
// line or soon after. A slot holds the id's number in the column and the hash bits that the
// position does not imply. So eight bytes tell ids apart exactly (Cleary, "Compact hash tables
// using bidirectional linear probing", 1984).
class IdIndex {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // `salt` enters the hash: the salt decides the numbers and nothing else. People who choose ids
  // should not know the salt: more than 512 ids with nearly equal hashes would not find room. A
  // column grows when its lines hold `max_of_line` ids each on average.
  // REQUIRES: 1 <= max_of_line <= 7.
  IdIndex(uint64_t salt, uint64_t max_of_line);

  size_t size() const { return size_; }
  // Bytes from the first one in use to the last, including unused lines of shorter columns.
  size_t num_bytes() const { return num_layers_of_lines_ * kNumColumns * sizeof(Line); }
  // All numbers are below end(). Columns have similar sizes. So few numbers below end() are unused
  // once there are some thousand ids.
  uint64_t end() const { return num_layers_ * kNumColumns; }
  bool IsUsed(uint64_t number) const {
    return number >> kColumnBits < columns_[number % kNumColumns].num_ids;
  }

  // Returns the id's number, or kNone if the id is absent.
  uint64_t Find(uint64_t id) const {
    return FindHashed<kernels::InstructionSet::BASELINE>({Hash(salt_, id)}, 0);
  }
  // Inserts a new id and returns its number.
  // REQUIRES: id != 0; the id is absent.
  uint64_t Insert(uint64_t id);

  // Finds many ids in stages, a few at a time, while memory arrives. Begin prefetches the home
  // lines of a batch. Some batches later, Look writes the numbers of the ids, with kNone for absent
  // ids, and returns how many are absent. Look lists ids that may lie away from home in `away`.
  // Resolve does the same for the listed ids.
  // REQUIRES: no Insert between these calls.
  class Batch;
  struct Away;
  void Begin(absl::Span<const uint64_t> ids, Batch& batch) const;  // at most Batch::kSize ids
  // `first` is the index of the batch's first id among all ids; `numbers` has room for all ids.
  template <kernels::InstructionSet kSet>
  size_t Look(const Batch& batch, size_t first, uint64_t* numbers, Away& away) const;
  template <kernels::InstructionSet kSet>
  size_t Resolve(absl::Span<const uint64_t> ids, const Away& away, uint64_t* numbers) const;

 private:
  static constexpr int kColumnBits = 10, kSlotsPerLine = 8;
  static constexpr uint64_t kNumColumns = uint64_t{1} << kColumnBits;
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kLookAhead = 24;  // lines prefetched ahead when a column grows

  struct alignas(kCacheLine) Line {
    uint64_t slots[kSlotsPerLine];  // 0: free; lines fill from the first slot on

    // Returns the low bits (place + 1) of the slot whose high bits equal `key`, or 0 if there is
    // none. `limit` is one above the largest low bits. A free slot has low bits 0. Branch-free,
    // because the matching slot is unpredictable.
    template <kernels::InstructionSet kSet>
    uint64_t PlaceOf(uint64_t key, uint64_t limit) const {
#ifdef TANDEM_VECTOR_COPIES
      if constexpr (kSet == kernels::InstructionSet::AVX512)
        return PlaceOfAvx512(slots, key, limit);
#endif
      uint64_t found = 0;
      for (const uint64_t slot : slots) found |= (slot ^ key) < limit ? slot ^ key : 0;
      return found;
    }
    bool full() const { return slots[kSlotsPerLine - 1] != 0; }

   private:
#ifdef TANDEM_VECTOR_COPIES
    __attribute__((target("avx512f"))) static uint64_t PlaceOfAvx512(const uint64_t* slots,
                                                                     uint64_t key, uint64_t limit) {
      typedef uint64_t Slots __attribute__((vector_size(kCacheLine)));
      Slots below;
      std::memcpy(&below, slots, sizeof(below));
      below ^= key;
      const __mmask8 found = _mm512_cmplt_epu64_mask(
          reinterpret_cast<__m512i>(below), _mm512_set1_epi64(static_cast<int64_t>(limit)));
      return reinterpret_cast<Slots>(
          _mm512_maskz_compress_epi64(found, reinterpret_cast<__m512i>(below)))[0];
    }
#endif
  };
  struct Column {
    uint32_t num_lines = 1, num_ids = 0;
  };
  // A hash. The lowest bits are the column, the bits above are the place within the column.
  struct Hashed {
    uint64_t bits;
    uint64_t column() const { return bits & (kNumColumns - 1); }
    uint64_t place() const { return bits & ~(kNumColumns - 1); }
  };
  // The home line of a hash, and the upper bits of a slot of the line at `distance` from home. A
  // slot is [rest of the hash | distance: 6 bits | place + 1].
  struct Home {
    uint64_t line, key, place_bits;
    uint64_t KeyAt(uint64_t distance) const { return key | distance << place_bits; }
    uint64_t limit() const { return uint64_t{1} << place_bits; }  // one above the largest place + 1
  };
  static constexpr int kDistanceBits = 6;
  static constexpr uint64_t kMaxDistance = (uint64_t{1} << kDistanceBits) - 1;
  // n lines hold up to 7 n ids, and place + 1 has kColumnBits - kDistanceBits + floor(log2 n) bits.
  static_assert(kColumnBits - kDistanceBits >= 4);
  struct Taken {
    Hashed hash;
    uint32_t place;
  };

  static uint64_t Hash(uint64_t salt, uint64_t id) {
    return std::rotl(Fmix64(id ^ salt), 2 * kColumnBits);
  }
  // Bits that a slot spends on place and distance in a column of `num_lines` lines.
  static uint64_t PlaceAndDistanceBits(uint32_t num_lines) {
    // The places of a column are multiples of 1,024. So the products of hashes that share a line
    // differ in the lower half from this bit on.
    return static_cast<uint64_t>(kColumnBits + std::bit_width(num_lines) - 1);
  }
  typedef uint64_t Numbers __attribute__((vector_size(kSlotsPerLine * sizeof(uint64_t))));
  // Does the same for a vector of numbers. Or-ing a number below 2^52 into the fraction of the
  // double 2^52, and subtracting 2^52, gives the number as a double. The exponent of this double is
  // the position of the highest bit.
  __attribute__((always_inline)) static inline void PlaceAndDistanceBits(const Numbers& num_lines,
                                                                         Numbers& bits) {
    typedef double Doubles __attribute__((vector_size(sizeof(Numbers))));
    constexpr int kFractionBits = 52, kBias = 1023;
    constexpr double kOne = uint64_t{1} << kFractionBits;
    const Numbers sum = num_lines | std::bit_cast<uint64_t>(kOne);
    bits = (reinterpret_cast<Numbers>(reinterpret_cast<Doubles>(sum) - kOne) >> kFractionBits) +
           (kColumnBits - kBias);
  }
  // Computes the line, and the rest of the hash, in place above the lowest `bits` bits. Works for a
  // number or a vector of numbers; 32-bit halves serve vectors.
  template <class Number>
  __attribute__((always_inline)) static inline void Divide(const Number& place,
                                                           const Number& num_lines,
                                                           const Number& bits, Number& line,
                                                           Number& key) {
    const Number low = (place & uint64_t{0xffffffff}) * num_lines,
                 high = (place >> 32) * num_lines + (low >> 32);
    line = high >> 32;
    key = (high << 32 | (low & uint64_t{0xffffffff})) >> bits << bits;
  }
  static Home HomeOf(Hashed hash, uint32_t num_lines) {
    const uint64_t bits = PlaceAndDistanceBits(num_lines);
    Home home{0, 0, bits - kDistanceBits};
    Divide(hash.place(), uint64_t{num_lines}, bits, home.line, home.key);
    return home;
  }
  // Puts the lines with one number of all columns together, rotated by line number. Without
  // rotation a column would sit in one set of a cache.
  template <class Number>
  __attribute__((always_inline)) static inline void NumberLine(const Number& column,
                                                               const Number& line, Number& number) {
    number = line << kColumnBits | ((column + 37 * line) & (kNumColumns - 1));
  }
  static uint64_t LineNumber(uint64_t column, uint64_t line) {
    uint64_t number;
    NumberLine(column, line, number);
    return number;
  }
  Line& LineNumbered(uint64_t number) const {
    return reinterpret_cast<Line*>(lines_.data())[number];
  }
  Line& LineAt(uint64_t column, uint64_t line) const {
    return LineNumbered(LineNumber(column, line));
  }

  // Like Find, but starts `distance` lines past the home line.
  // REQUIRES: the id is not stored nearer.
  template <kernels::InstructionSet kSet>
  uint64_t FindHashed(Hashed hash, uint64_t distance) const;
  // Stores the place. Returns false, changing nothing, if the id would lie too far from home.
  bool Place(uint64_t column, const Home& home, uint32_t place);
  // Recovers the hash bits of an id from its slot and its home line.
  uint64_t BitsOf(uint64_t column, uint64_t home_line, uint64_t slot) const;
  // Moves the contents of the column's lines to taken_.
  void TakeOut(uint64_t column);
  void GrowColumn(uint64_t column);
  void EnsureLines(uint64_t num_lines);

  const uint64_t salt_;
  const uint64_t max_of_line_;
  size_t size_ = 0;
  std::vector<Column> columns_;
  GrowingMemory lines_;
  uint64_t num_layers_of_lines_ = 0, num_layers_ = 0;  // lines and ids of the longest column
  std::vector<Taken> taken_;                           // ids of the column that grows
};

class IdIndex::Batch {
 public:
  static constexpr size_t kSize = kSlotsPerLine;

 private:
  friend class IdIndex;
  size_t count_ = 0;
  uint64_t hashes_[kSize], num_lines_[kSize], home_lines_[kSize], line_numbers_[kSize],
      keys_[kSize], limits_[kSize];
};

// Ids that are not in their full home line.
struct IdIndex::Away {
  static constexpr size_t kMaxIds = 4096;
  size_t count = 0;
  uint16_t places[kMaxIds];  // indices among all ids
};

template <kernels::InstructionSet kSet>
inline uint64_t IdIndex::FindHashed(Hashed hash, uint64_t distance) const {
  const Column& column = columns_[hash.column()];
  const Home home = HomeOf(hash, column.num_lines);
  uint64_t at = home.line + distance;
  if (at >= column.num_lines) at %= column.num_lines;
  for (; distance <= kMaxDistance; ++distance) {
    const Line& line = LineAt(hash.column(), at);
    const uint64_t found = line.PlaceOf<kSet>(home.KeyAt(distance), home.limit());
    if (found != 0) return (found - 1) << kColumnBits | hash.column();
    if (!line.full()) break;
    if (++at == column.num_lines) at = 0;
  }
  return kNone;
}

inline void IdIndex::Begin(absl::Span<const uint64_t> ids, Batch& batch) const {
  constexpr size_t kSize = Batch::kSize;
  batch.count_ = ids.size();
  for (size_t i = 0; i < kSize; ++i) batch.hashes_[i] = i < ids.size() ? Hash(salt_, ids[i]) : 0;
  const Column* const columns = columns_.data();
  for (size_t i = 0; i < kSize; ++i)
    batch.num_lines_[i] = columns[Hashed{batch.hashes_[i]}.column()].num_lines;
  // Explicit vectors, because g++ 12 does not vectorise the loop.
  Numbers hashes, num_lines, bits, line, key, number;
  std::memcpy(&hashes, batch.hashes_, sizeof(hashes));
  std::memcpy(&num_lines, batch.num_lines_, sizeof(num_lines));
  PlaceAndDistanceBits(num_lines, bits);
  Divide<Numbers>(hashes & ~(kNumColumns - 1), num_lines, bits, line, key);
  NumberLine<Numbers>(hashes & (kNumColumns - 1), line, number);
  const Numbers limit = (Numbers{} + 1) << (bits - kDistanceBits);
  std::memcpy(batch.home_lines_, &line, sizeof(line));
  std::memcpy(batch.line_numbers_, &number, sizeof(number));
  std::memcpy(batch.keys_, &key, sizeof(key));
  std::memcpy(batch.limits_, &limit, sizeof(limit));
  // Prefetches into the second cache. The first cache is no faster on processors that fetch records
  // there (RowStore).
  for (size_t i = 0; i < kSize; ++i)
    __builtin_prefetch(&LineNumbered(batch.line_numbers_[i]), 0, 2);
}

template <kernels::InstructionSet kSet>
inline size_t IdIndex::Look(const Batch& batch, size_t first, uint64_t* numbers, Away& away) const {
  uint64_t found[Batch::kSize];  // place + 1, or 0
  for (size_t i = 0; i < Batch::kSize; ++i) {
    found[i] = LineNumbered(batch.line_numbers_[i]).PlaceOf<kSet>(batch.keys_[i], batch.limits_[i]);
  }
  size_t end = away.count, num_absent = 0;
  for (size_t i = 0; i < batch.count_; ++i) {
    numbers[first + i] = (found[i] - 1) << kColumnBits | Hashed{batch.hashes_[i]}.column();
    away.places[end] = static_cast<uint16_t>(first + i);
    end += found[i] == 0;
  }
  for (size_t place = away.count; place < end; ++place) {
    const size_t i = away.places[place] - first;
    if (LineNumbered(batch.line_numbers_[i]).full()) {
      const uint64_t next = batch.home_lines_[i] + 1;
      __builtin_prefetch(
          &LineAt(Hashed{batch.hashes_[i]}.column(), next == batch.num_lines_[i] ? 0 : next), 0, 2);
      away.places[away.count++] = away.places[place];
    } else {
      numbers[first + i] = kNone;
      ++num_absent;
    }
  }
  return num_absent;
}

template <kernels::InstructionSet kSet>
inline size_t IdIndex::Resolve(absl::Span<const uint64_t> ids, const Away& away,
                               uint64_t* numbers) const {
  size_t num_absent = 0;
  for (size_t i = 0; i < away.count; ++i) {
    const uint64_t number = FindHashed<kSet>({Hash(salt_, ids[away.places[i]])}, 1);
    numbers[away.places[i]] = number;
    num_absent += number == kNone;
  }
  return num_absent;
}

}  // namespace tandem::ps
