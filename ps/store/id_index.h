// Numbers for 64-bit ids: an open-addressing index, cut into 1,024 columns by the id's hash, that grows without a pause for all of them.
//
// A column is a run of lines of 64 bytes, eight slots each. An id is at home in the line that the rest of its hash falls into (a product
// instead of a division: Lemire, "Fast Random Integer Generation in an Interval", 2019), or soon after it. What its place does not say
// of the hash the slot holds, beside the id's number in its column: so eight bytes a slot tell ids apart exactly (Cleary, "Compact hash
// tables using bidirectional linear probing", 1984). Columns grow one at a time, by a sixteenth. The n-th id of column c has the number
// n * 1,024 + c, for good.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "kernels/memory/growing_memory.h"
#include "kernels/base/random.h"
#include "kernels/cpu/vector/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <immintrin.h>
#endif

namespace tandem::ps {

class IdIndex {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};

  // `salt` enters the hash: it decides the numbers, nothing else. It should not be known to those who choose ids: more than 512 whose
  // hashes are all but equal would not find room. Columns grow when their lines have `max_of_line` ids each, on average.
  // REQUIRES: 1 <= max_of_line <= 7.
  IdIndex(uint64_t salt, uint64_t max_of_line);

  size_t size() const { return size_; }
  // From the first byte in use to the last: the ragged end is counted whole.
  size_t num_bytes() const { return num_layers_of_lines_ * kNumColumns * sizeof(Line); }
  // All numbers are below it. Columns are alike in size: few are not used, or at least few of more than some thousand.
  uint64_t end() const { return num_layers_ * kNumColumns; }
  bool IsUsed(uint64_t number) const { return number >> kColumnBits < columns_[number % kNumColumns].num_ids; }

  // kNone if it is not there.
  uint64_t Find(uint64_t id) const { return FindHashed<kernels::InstructionSet::BASELINE>({Hash(salt_, id)}, 0); }
  // The number of a new id. REQUIRES: id != 0 and it is not there.
  uint64_t Insert(uint64_t id);

  // Many ids are found in stages, a few at a time, while memory comes. Begin asks for the lines of a batch's homes; some batches later
  // Look says the numbers of the ids that are there, or kNone if they would be, of which it returns how many there are, and lists those
  // that may be away from home. Resolve does the same for these.
  // REQUIRES: no Insert meanwhile.
  class Batch;
  struct Away;
  void Begin(absl::Span<const uint64_t> ids, Batch& batch) const;  // at most Batch::kSize
  // `first`: of the batch among all ids, whose numbers are at `numbers`.
  template <kernels::InstructionSet kSet>
  size_t Look(const Batch& batch, size_t first, uint64_t* numbers, Away& away) const;
  template <kernels::InstructionSet kSet>
  size_t Resolve(absl::Span<const uint64_t> ids, const Away& away, uint64_t* numbers) const;

 private:
  static constexpr int kColumnBits = 10, kSlotsPerLine = 8;
  static constexpr uint64_t kNumColumns = uint64_t{1} << kColumnBits;
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kLookAhead = 24;  // lines, when a column grows

  struct alignas(kCacheLine) Line {
    uint64_t slots[kSlotsPerLine];  // 0: free; lines fill from the first slot on

    // What the slot that begins with `key` says below `limit`; 0 if there is none: of a free slot that is all that it says.
    // Without branches: which slot it is cannot be predicted.
    template <kernels::InstructionSet kSet>
    uint64_t PlaceOf(uint64_t key, uint64_t limit) const {
#ifdef TANDEM_VECTOR_COPIES
      if constexpr (kSet == kernels::InstructionSet::AVX512) return PlaceOfAvx512(slots, key, limit);
#endif
      uint64_t found = 0;
      for (const uint64_t slot : slots) found |= (slot ^ key) < limit ? slot ^ key : 0;
      return found;
    }
    bool full() const { return slots[kSlotsPerLine - 1] != 0; }

   private:
#ifdef TANDEM_VECTOR_COPIES
    __attribute__((target("avx512f"))) static uint64_t PlaceOfAvx512(const uint64_t* slots, uint64_t key, uint64_t limit) {
      typedef uint64_t Slots __attribute__((vector_size(kCacheLine)));
      Slots below;
      std::memcpy(&below, slots, sizeof(below));
      below ^= key;
      const __mmask8 found =
          _mm512_cmplt_epu64_mask(reinterpret_cast<__m512i>(below), _mm512_set1_epi64(static_cast<int64_t>(limit)));
      return reinterpret_cast<Slots>(_mm512_maskz_compress_epi64(found, reinterpret_cast<__m512i>(below)))[0];
    }
#endif
  };
  struct Column {
    uint32_t num_lines = 1, num_ids = 0;
  };
  // A hash, its bits in the order in which they are used: the place within the column above, the column in the lowest.
  struct Hashed {
    uint64_t bits;
    uint64_t column() const { return bits & (kNumColumns - 1); }
    uint64_t place() const { return bits & ~(kNumColumns - 1); }
  };
  // Where a hash is at home, and what a slot of the line at `distance` from there says above the id's place in its column:
  // [rest of the hash | distance: 6 bits | place + 1].
  struct Home {
    uint64_t line, key, place_bits;
    uint64_t KeyAt(uint64_t distance) const { return key | distance << place_bits; }
    uint64_t limit() const { return uint64_t{1} << place_bits; }  // of what it says below
  };
  static constexpr int kDistanceBits = 6;
  static constexpr uint64_t kMaxDistance = (uint64_t{1} << kDistanceBits) - 1;
  // n lines hold up to 7 n ids, and place + 1 has kColumnBits - kDistanceBits + floor(log2 n) bits.
  static_assert(kColumnBits - kDistanceBits >= 4);
  struct Taken {
    Hashed hash;
    uint32_t place;
  };

  static uint64_t Hash(uint64_t salt, uint64_t id) { return std::rotl(Fmix64(id ^ salt), 2 * kColumnBits); }
  // The bits of a slot for place and distance, in a column of so many lines.
  static uint64_t PlaceAndDistanceBits(uint32_t num_lines) {
    // Places in the column are multiples of 1,024, so of a product's lower half the bits from this one on differ between all that share a
    // line.
    return static_cast<uint64_t>(kColumnBits + std::bit_width(num_lines) - 1);
  }
  typedef uint64_t Numbers __attribute__((vector_size(kSlotsPerLine * sizeof(uint64_t))));
  // Of many: a number below 2^52 in the fraction of 2^52, less that, is itself, and its exponent is the place of its highest bit.
  __attribute__((always_inline)) static inline void PlaceAndDistanceBits(const Numbers& num_lines, Numbers& bits) {
    typedef double Doubles __attribute__((vector_size(sizeof(Numbers))));
    constexpr int kFractionBits = 52, kBias = 1023;
    constexpr double kOne = uint64_t{1} << kFractionBits;
    const Numbers sum = num_lines | std::bit_cast<uint64_t>(kOne);
    bits = (reinterpret_cast<Numbers>(reinterpret_cast<Doubles>(sum) - kOne) >> kFractionBits) + (kColumnBits - kBias);
  }
  // A line, and the rest of the hash in its place above `bits`. Of a number or of a vector of them, by halves of 32 bits for its sake.
  template <class Number>
  __attribute__((always_inline)) static inline void Divide(const Number& place, const Number& num_lines, const Number& bits,
                                                           Number& line, Number& key) {
    const Number low = (place & uint64_t{0xffffffff}) * num_lines, high = (place >> 32) * num_lines + (low >> 32);
    line = high >> 32;
    key = (high << 32 | (low & uint64_t{0xffffffff})) >> bits << bits;
  }
  static Home HomeOf(Hashed hash, uint32_t num_lines) {
    const uint64_t bits = PlaceAndDistanceBits(num_lines);
    Home home{0, 0, bits - kDistanceBits};
    Divide(hash.place(), uint64_t{num_lines}, bits, home.line, home.key);
    return home;
  }
  // Lines of one number in all columns lie together, turned against those of others so that a column does not sit in one set of a cache.
  template <class Number>
  __attribute__((always_inline)) static inline void NumberLine(const Number& column, const Number& line, Number& number) {
    number = line << kColumnBits | ((column + 37 * line) & (kNumColumns - 1));
  }
  static uint64_t LineNumber(uint64_t column, uint64_t line) {
    uint64_t number;
    NumberLine(column, line, number);
    return number;
  }
  Line& LineNumbered(uint64_t number) const { return reinterpret_cast<Line*>(lines_.data())[number]; }
  Line& LineAt(uint64_t column, uint64_t line) const { return LineNumbered(LineNumber(column, line)); }

  // Of an id whose distance from home, if it is there, is not less.
  template <kernels::InstructionSet kSet>
  uint64_t FindHashed(Hashed hash, uint64_t distance) const;
  // False, changing nothing, if the id would lie too far from home.
  bool Place(uint64_t column, const Home& home, uint32_t place);
  // The hash of an id whose slot is in a line `distance` from this home.
  uint64_t BitsOf(uint64_t column, uint64_t home_line, uint64_t slot) const;
  // Empties the column's lines into taken_.
  void TakeOut(uint64_t column);
  void GrowColumn(uint64_t column);
  void EnsureLines(uint64_t num_lines);

  const uint64_t salt_;
  const uint64_t max_of_line_;
  size_t size_ = 0;
  std::vector<Column> columns_;
  GrowingMemory lines_;
  uint64_t num_layers_of_lines_ = 0, num_layers_ = 0;  // of the longest column
  std::vector<Taken> taken_;                           // of the column that grows
};

class IdIndex::Batch {
 public:
  static constexpr size_t kSize = kSlotsPerLine;

 private:
  friend class IdIndex;
  size_t count_ = 0;
  uint64_t hashes_[kSize], num_lines_[kSize], home_lines_[kSize], line_numbers_[kSize], keys_[kSize], limits_[kSize];
};

// Ids that are not in their home's line, which is full.
struct IdIndex::Away {
  static constexpr size_t kMaxIds = 4096;
  size_t count = 0;
  uint16_t places[kMaxIds];  // among all ids
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
  for (size_t i = 0; i < kSize; ++i) batch.num_lines_[i] = columns[Hashed{batch.hashes_[i]}.column()].num_lines;
  // Vectors spelt out: g++ 12 does not make them of a loop.
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
  // Into the second cache: into the first is no faster on processors that take records there (RowStore).
  for (size_t i = 0; i < kSize; ++i) __builtin_prefetch(&LineNumbered(batch.line_numbers_[i]), 0, 2);
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
      __builtin_prefetch(&LineAt(Hashed{batch.hashes_[i]}.column(), next == batch.num_lines_[i] ? 0 : next), 0, 2);
      away.places[away.count++] = away.places[place];
    } else {
      numbers[first + i] = kNone;
      ++num_absent;
    }
  }
  return num_absent;
}

template <kernels::InstructionSet kSet>
inline size_t IdIndex::Resolve(absl::Span<const uint64_t> ids, const Away& away, uint64_t* numbers) const {
  size_t num_absent = 0;
  for (size_t i = 0; i < away.count; ++i) {
    const uint64_t number = FindHashed<kSet>({Hash(salt_, ids[away.places[i]])}, 1);
    numbers[away.places[i]] = number;
    num_absent += number == kNone;
  }
  return num_absent;
}

}  // namespace tandem::ps
