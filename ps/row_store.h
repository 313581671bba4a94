// Records of equal size found by a 64-bit id, in memory that grows without a pause for all of them: an open-addressing index and
// an array of records, both cut into 1,024 columns by the id's hash.
//
// Index. A column is a run of lines of 64 bytes, eight slots each. A row is at home in the line that the rest of its hash falls into
// (a product instead of a division: Lemire, "Fast Random Integer Generation in an Interval", 2019), or soon after it. What its place
// does not say of the hash the slot holds, beside the row's number in its column: so eight bytes a slot tell ids apart exactly (Cleary,
// "Compact hash tables using bidirectional linear probing", 1984). Columns grow one at a time, by a sixteenth, and are at most seven
// eighths full; those of large records five, for then few rows are away from home and the index is small beside them all the same.
// Records. Number n of column c is record n * 1,024 + c. Columns are alike in size: the memory is used up to a ragged end, which is a
// few percent of a million rows, and more of a few thousand.
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
  // `salt` enters the hash: it decides where records lie and in what order they are visited, nothing else. It should not be known to
  // those who choose ids: more than 512 whose hashes are all but equal would not find room. `stride` bytes a record, which begins with
  // its id. REQUIRES: stride >= 8.
  RowStore(uint64_t salt, size_t stride);

  size_t size() const { return size_; }
  size_t stride() const { return stride_; }
  // From the first byte in use to the last: the ragged end is counted whole.
  size_t index_bytes() const { return num_layers_of_lines_ * kNumColumns * sizeof(Line); }
  size_t record_bytes() const { return num_layers_of_records_ * kNumColumns * stride_; }

  // Null if there is none.
  char* Find(uint64_t id) const;
  // A new record, zero but for its id. REQUIRES: id != 0 and there is none.
  char* Insert(uint64_t id);
  // visit(record), in any order.
  template <class Visit>
  void ForEachRecord(const Visit& visit) const;
  // visit(i, record or null) for each id, in order, while the memory of those that follow is on its way: `bytes` of a record from
  // `offset` on. The visit of an absent id may Insert it, if ids are distinct. Compiled for the widest vectors (vectorise.h), the
  // visit included, but for what it calls out of line.
  template <class Visit>
  void ForEach(absl::Span<const uint64_t> ids, size_t offset, size_t bytes, const Visit& visit);

 private:
  static constexpr int kColumnBits = 10, kSlotsPerLine = 8;
  static constexpr uint64_t kNumColumns = uint64_t{1} << kColumnBits;
  static constexpr uint32_t kAbsent = ~uint32_t{0};
  static constexpr size_t kCacheLine = 64;
  // In place of a record's number and column.
  static constexpr uint64_t kNoRecord = ~uint64_t{0};
  // Of a batch: ids whose lines are fetched together, ids that are found before any of their records is fetched, and how many ids ahead
  // records are fetched.
  static constexpr size_t kBlock = 32, kTogether = 256, kLookAhead = 24;

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
  };
  static constexpr int kDistanceBits = 6;
  static constexpr uint64_t kMaxDistance = (uint64_t{1} << kDistanceBits) - 1;
  // n lines hold up to 7 n rows, and number + 1 has kColumnBits - kDistanceBits + floor(log2 n) bits.
  static_assert(kColumnBits - kDistanceBits >= 4);
  // Where things are until the next Insert.
  struct Places {
    const Line* lines;
    const Column* columns;
    uint64_t salt;
  };
  // Some ids of a batch and where they are to be looked for.
  struct Block {
    Hashed hashes[kBlock];
    const Line* lines[kBlock];  // homes
    uint64_t keys[kBlock];
    int number_bits[kBlock];
    uint8_t away[kBlock + 1];   // places of those that are not at home
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
  // The stages of a batch: fetches the homes' lines; looks there, and further where it must; both for many ids, in turns.
  static void FetchHomes(const Places& places, const uint64_t* ids, size_t count, Block& block);
  template <kernels::InstructionSet kSet>
  void LookAtHomes(size_t count, Block& block, uint64_t* records) const;
  template <kernels::InstructionSet kSet>
  void FindRecords(const uint64_t* ids, size_t count, uint64_t* records) const;
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

inline void RowStore::FetchHomes(const Places& places, const uint64_t* ids, size_t count, Block& block) {
  for (size_t i = 0; i < count; ++i) block.hashes[i] = Hash(places.salt, ids[i]);
  for (size_t i = 0; i < count; ++i) {
    const Hashed hash = block.hashes[i];
    const Home home = HomeOf(hash, places.columns[hash.column()].num_lines);
    block.lines[i] = &places.lines[LineNumber(hash.column(), home.line)];
    block.keys[i] = home.key;
    block.number_bits[i] = home.number_bits;
    __builtin_prefetch(block.lines[i]);
  }
}

template <kernels::InstructionSet kSet>
inline void RowStore::LookAtHomes(size_t count, Block& block, uint64_t* records) const {
  size_t num_away = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t found = block.lines[i]->NumberOf<kSet>(block.keys[i], block.number_bits[i]);
    records[i] = (found - 1) << kColumnBits | block.hashes[i].column();
    block.away[num_away] = static_cast<uint8_t>(i);
    num_away += found == 0;
  }
  for (size_t i = 0; i < num_away; ++i) {
    const Hashed hash = block.hashes[block.away[i]];
    const uint32_t number = FindNumber<kSet>(hash);
    records[block.away[i]] = number == kAbsent ? kNoRecord : uint64_t{number} << kColumnBits | hash.column();
  }
}

template <kernels::InstructionSet kSet>
inline void RowStore::FindRecords(const uint64_t* ids, size_t count, uint64_t* records) const {
  const Places places{reinterpret_cast<const Line*>(index_.data()), columns_.data(), salt_};
  Block blocks[2];
  for (size_t begin = 0; begin < count + kBlock; begin += kBlock) {
    if (begin < count) FetchHomes(places, ids + begin, std::min(kBlock, count - begin), blocks[begin / kBlock % 2]);
    if (begin == 0) continue;
    const size_t last = begin - kBlock;
    LookAtHomes<kSet>(std::min(kBlock, count - last), blocks[last / kBlock % 2], records + last);
  }
}

template <class Visit>
void RowStore::ForEach(absl::Span<const uint64_t> ids, size_t offset, size_t bytes, const Visit& visit) {
  kernels::Vectorised([=, this, &visit](auto set) {
    uint64_t records[kTogether];
    const size_t stride = stride_;
    // Rows are visited in a loop of little else than memory: a processor sees a few hundred instructions ahead, and all that it fetches
    // at a time is among them.
    for (size_t begin = 0; begin < ids.size(); begin += kTogether) {
      const size_t count = std::min(kTogether, ids.size() - begin);
      FindRecords<decltype(set)::value>(ids.data() + begin, count, records);
      // Inlined at once: g++ 12 takes a function that only prefetches for one without effect, and leaves its calls out.
      const auto fetch = [&](size_t i) __attribute__((always_inline)) {
        const uintptr_t record = reinterpret_cast<uintptr_t>(records_.data()) + (records[i] == kNoRecord ? 0 : records[i] * stride);
        const uintptr_t end = record + offset + bytes;
        for (uintptr_t at = (record + offset) & ~(kCacheLine - 1); at < end; at += kCacheLine) {
          __builtin_prefetch(reinterpret_cast<const void*>(at));
        }
      };
      for (size_t i = 0; i < std::min(count, kLookAhead); ++i) fetch(i);
      for (size_t i = 0; i < count; ++i) {
        if (i + kLookAhead < count) fetch(i + kLookAhead);
        visit(begin + i, records[i] == kNoRecord ? nullptr : records_.data() + records[i] * stride);
      }
    }
  });
}

}  // namespace tandem::ps
