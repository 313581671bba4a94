// Records of equal size found by a 64-bit id, in memory that grows without a pause for all of them: an open-addressing index over
// slabs of records, both cut into 1,024 columns by the id's hash.
//
// Index. A column is a run of lines of 64 bytes, eight slots each; a row's place is the line that the rest of its hash falls into (Lemire,
// "Fast Random Integer Generation in an Interval", 2019, for the division) or one soon after it. What the place does not say of the
// hash the slot holds, so that ids are told apart exactly by 8 bytes a slot (Cleary, "Compact hash tables using bidirectional linear
// probing", 1984), beside the row's number in its column. Columns grow one at a time, by a sixteenth, and are at most seven eighths full, those of large
// records five eighths: then few rows are away from home, and the index is small beside them all the same.
// Records. Number n of column c is record n * 1,024 + c: columns are alike in size, so the memory is used up to a ragged end.
// Thread rule: one thread at a time. Records move when the store grows: a pointer is good until the next Insert.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/growing_memory.h"
#include "kernels/base/random.h"
#include "kernels/cpu/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <immintrin.h>
#endif

namespace tandem::ps {

class RowStore {
 public:
  // `salt` enters the hash and decides nothing else than places. `stride` bytes a record, which begins with its id. REQUIRES: stride >= 8.
  RowStore(uint64_t salt, size_t stride);

  size_t size() const { return size_; }
  size_t stride() const { return stride_; }
  // Of the memory in use, whole columns' ragged ends included.
  size_t index_bytes() const { return num_layers_of_lines_ * kNumColumns * sizeof(Line); }
  size_t record_bytes() const { return num_layers_of_records_ * kNumColumns * stride_; }

  // Null if there is none.
  char* Find(uint64_t id) const;
  // A new record, zero but for its id. REQUIRES: id != 0 and there is none.
  char* Insert(uint64_t id);
  // visit(record), in an order that only the rows and their order of insertion decide.
  template <class Visit>
  void ForEachRecord(const Visit& visit) const;
  // visit(i, record or null) for each id, in order, while the memory of those that follow is on its way: `bytes` of a record from
  // `offset` on. The visit of an absent id may Insert it. Runs compiled for the widest vectors, the visit included (vectorise.h).
  template <class Visit>
  void ForEach(absl::Span<const uint64_t> ids, size_t offset, size_t bytes, const Visit& visit);

 private:
  static constexpr int kColumnBits = 10, kSlotsPerLine = 8;
  static constexpr uint64_t kNumColumns = uint64_t{1} << kColumnBits;
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  static constexpr size_t kCacheLine = 64;
  static constexpr uint64_t kNoRecord = ~uint64_t{0};
  static constexpr size_t kBlock = 32, kLookAhead = 16;

  struct alignas(kCacheLine) Line {
    uint64_t slots[kSlotsPerLine];  // 0: free; lines fill from the first slot on

    // What the slot that is otherwise `wanted` says in its lowest `bits`; 0 if there is none. Without branches: which slot it is cannot
    // be predicted.
    template <kernels::InstructionSet kSet>
    uint64_t NumberOf(uint64_t wanted, int bits) const {
      const uint64_t mask = (uint64_t{1} << bits) - 1;
      uint32_t equal = 0;
#ifdef TANDEM_VECTOR_COPIES
      if constexpr (kSet == kernels::InstructionSet::AVX512) equal = EqualAvx512(slots, wanted, mask);
#endif
      if constexpr (kSet != kernels::InstructionSet::AVX512) {
        for (int i = 0; i < kSlotsPerLine; ++i) equal |= static_cast<uint32_t>((slots[i] & ~mask) == wanted) << i;
      }
      return equal == 0 ? 0 : slots[std::countr_zero(equal | 1u << kSlotsPerLine) % kSlotsPerLine] & mask;
    }

   private:
#ifdef TANDEM_VECTOR_COPIES
    __attribute__((target("avx512f"))) static uint32_t EqualAvx512(const uint64_t* slots, uint64_t wanted, uint64_t mask) {
      typedef uint64_t Slots __attribute__((vector_size(kCacheLine)));
      Slots all;
      std::memcpy(&all, slots, sizeof(all));
      return _mm512_cmpeq_epi64_mask(reinterpret_cast<__m512i>(all & ~mask), _mm512_set1_epi64(static_cast<int64_t>(wanted)));
    }
#endif
  };
  struct Column {
    uint32_t num_lines = 1, num_rows = 0;
  };
  // A hash, its bits in the order in which they are used: the place within the column above, the column in the lowest.
  struct Hashed {
    uint64_t bits;
    uint64_t column() const { return bits & (kNumColumns - 1); }
    uint64_t place() const { return bits & ~(kNumColumns - 1); }
  };
  // Where a hash is at home, and what a slot of the line at `distance` from there says above the row's number:
  // [rest of the hash | distance: 6 bits | number + 1].
  struct Home {
    uint64_t line, key;
    int number_bits;
    uint64_t SlotAt(uint64_t distance) const { return key | distance << number_bits; }
    uint64_t number_mask() const { return (uint64_t{1} << number_bits) - 1; }
  };
  static constexpr int kDistanceBits = 6;
  static constexpr uint64_t kMaxDistance = (uint64_t{1} << kDistanceBits) - 1;
  // Where things are until the next Insert.
  struct Places {
    const Line* lines;
    const Column* columns;
    char* records;
    uint64_t salt;
  };
  // Some ids of a batch on their way through its stages.
  struct Block {
    Hashed hashes[kBlock];
    const Line* lines[kBlock];  // homes
    uint64_t keys[kBlock];
    int number_bits[kBlock];
    uint64_t records[kBlock];    // number and column, or kNoRecord
    uint8_t away[kBlock + 1];    // places of those that are not at home
    size_t num_away = 0;
  };
  struct Taken {
    Hashed hash;
    uint32_t number;
  };

  static Hashed Hash(uint64_t salt, uint64_t id) { return {std::rotl(Fmix64(id ^ salt), 2 * kColumnBits)}; }
  static Home HomeOf(Hashed hash, uint32_t num_lines) {
    const unsigned __int128 product = static_cast<unsigned __int128>(hash.place()) * num_lines;
    // Places are multiples of 1,024, so the lower half's bits from this one on differ between all that share a line.
    const int number_and_distance = kColumnBits + std::bit_width(num_lines) - 1;
    const uint64_t rest = static_cast<uint64_t>(product) >> number_and_distance << number_and_distance;
    return {static_cast<uint64_t>(product >> 64), rest, number_and_distance - kDistanceBits};
  }
  // Lines of one number in all columns lie together, turned against those of others so that a column does not sit in one set of a cache.
  static uint64_t LineNumber(uint64_t column, uint64_t line) {
    return line << kColumnBits | ((column + 37 * line) & (kNumColumns - 1));
  }
  Line& LineAt(uint64_t column, uint64_t line) const {
    return reinterpret_cast<Line*>(index_.data())[LineNumber(column, line)];
  }
  char* Record(uint64_t column, uint64_t number) const { return records_.data() + (number << kColumnBits | column) * stride_; }

  template <kernels::InstructionSet kSet>
  uint32_t FindNumber(Hashed hash) const;
  Places CurrentPlaces() const {
    return {reinterpret_cast<const Line*>(index_.data()), columns_.data(), records_.data(), salt_};
  }
  static void Fetch(const char* record, size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kCacheLine) __builtin_prefetch(record + at);
  }
  // The stages of a batch.
  static void FindHomes(const Places& places, const uint64_t* ids, size_t count, Block& block);
  template <kernels::InstructionSet kSet>
  static void LookAtHomes(size_t count, Block& block);
  template <kernels::InstructionSet kSet>
  void LookFurther(Block& block, size_t begin, size_t end) const;
  // False, changing nothing, if the row would lie too far from home.
  bool Place(uint64_t column, const Home& home, uint32_t number);
  // The hash of a row whose slot is in a line `distance` from this home.
  uint64_t BitsOf(uint64_t column, uint64_t home_line, uint64_t slot) const;
  // Empties the column's lines into taken_.
  void TakeOut(uint64_t column);
  void GrowColumn(uint64_t column);
  void EnsureLines(uint64_t num_lines);

  const uint64_t salt_;
  const size_t stride_;
  const uint64_t max_rows_of_line_;
  size_t size_ = 0;
  std::vector<Column> columns_;
  GrowingMemory index_, records_;
  uint64_t num_layers_of_lines_ = 0, num_layers_of_records_ = 0;  // of the longest column
  std::vector<Taken> taken_;  // of the column that grows
};

template <kernels::InstructionSet kSet>
inline uint32_t RowStore::FindNumber(Hashed hash) const {
  const Column& column = columns_[hash.column()];
  const Home home = HomeOf(hash, column.num_lines);
  uint64_t at = home.line;
  for (uint64_t distance = 0; distance <= kMaxDistance; ++distance) {
    const Line& line = LineAt(hash.column(), at);
    const uint64_t found = line.NumberOf<kSet>(home.SlotAt(distance), home.number_bits);
    if (found != 0) return static_cast<uint32_t>(found - 1);
    if (line.slots[kSlotsPerLine - 1] == 0) break;
    if (++at == column.num_lines) at = 0;
  }
  return kAbsent;
}

template <class Visit>
void RowStore::ForEachRecord(const Visit& visit) const {
  for (uint64_t number = 0; number < num_layers_of_records_; ++number) {
    for (uint64_t column = 0; column < kNumColumns; ++column) {
      if (number < columns_[column].num_rows) visit(Record(column, number));
    }
  }
}

inline void RowStore::FindHomes(const Places& places, const uint64_t* ids, size_t count, Block& block) {
  for (size_t i = 0; i < count; ++i) block.hashes[i] = Hash(places.salt, ids[i]);
  for (size_t i = 0; i < count; ++i) {
    const Hashed hash = block.hashes[i];
    const Home home = HomeOf(hash, places.columns[hash.column()].num_lines);
    block.lines[i] = &places.lines[LineNumber(hash.column(), home.line)];
    block.keys[i] = home.key;
    block.number_bits[i] = home.number_bits;
  }
}

template <kernels::InstructionSet kSet>
inline void RowStore::LookAtHomes(size_t count, Block& block) {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t found = block.lines[i]->NumberOf<kSet>(block.keys[i], block.number_bits[i]);
    // Of one that is not there, the column's first record, so that what is fetched is an address.
    block.records[i] = (found - (found != 0)) << kColumnBits | block.hashes[i].column();
    block.away[block.num_away] = static_cast<uint8_t>(i);
    block.num_away += found == 0;
  }
  for (size_t i = 0; i < block.num_away; ++i) __builtin_prefetch(block.lines[block.away[i]] + kNumColumns);
}

template <kernels::InstructionSet kSet>
inline void RowStore::LookFurther(Block& block, size_t begin, size_t end) const {
  for (size_t i = 0; i < block.num_away; ++i) {
    const Hashed hash = block.hashes[block.away[i]];
    const uint32_t number = FindNumber<kSet>(hash);
    uint64_t& record = block.records[block.away[i]];
    record = number == kAbsent ? kNoRecord : uint64_t{number} << kColumnBits | hash.column();
    if (number != kAbsent) Fetch(records_.data() + record * stride_, begin, end);
  }
  block.num_away = 0;
}

template <class Visit>
void RowStore::ForEach(absl::Span<const uint64_t> ids, size_t offset, size_t bytes, const Visit& visit) {
  const size_t begin = offset / kCacheLine * kCacheLine, end = offset + bytes;
  kernels::Vectorised([=, this, &visit](auto set) {
    constexpr kernels::InstructionSet kSet = decltype(set)::value;
    Block blocks[3];
    Places places = CurrentPlaces();
    const size_t stride = stride_, num_blocks = (ids.size() + kBlock - 1) / kBlock;
    const auto count_of = [&](size_t block) { return block < num_blocks ? std::min(kBlock, ids.size() - block * kBlock) : 0; };
    for (size_t b = 0; b < num_blocks + 2; ++b) {
      Block &coming = blocks[b % 3], &fetched = blocks[(b + 2) % 3], &arrived = blocks[(b + 1) % 3];
      const size_t num_coming = count_of(b), num_fetched = count_of(b - 1), num_arrived = count_of(b - 2), size = size_;
      FindHomes(places, ids.data() + b * kBlock, num_coming, coming);
      LookAtHomes<kSet>(num_fetched, fetched);
      // Nothing but memory here: a processor sees a few hundred instructions ahead, and all that it fetches at a time is among them.
      for (size_t i = 0; i < kBlock; ++i) {
        if (i < num_coming) __builtin_prefetch(coming.lines[i]);
        if (i < num_fetched) Fetch(places.records + fetched.records[i] * stride, begin, end);
        if (i >= num_arrived) continue;
        const uint64_t record = arrived.records[i];
        visit((b - 2) * kBlock + i, record == kNoRecord ? nullptr : places.records + record * stride);
        if (size_ != size) places = CurrentPlaces();
      }
      if (size_ != size) FindHomes(places, ids.data() + b * kBlock, num_coming, coming);  // an Insert may have moved them
      LookFurther<kSet>(fetched, begin, end);
    }
  });
}

}  // namespace tandem::ps
