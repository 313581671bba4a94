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
#include "kernels/base/growing_memory.h"
#include "kernels/base/random.h"
#include "kernels/cpu/vectorise.h"

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
  uint64_t Find(uint64_t id) const { return FindHashed<kernels::InstructionSet::BASELINE>({Hash(salt_, id)}); }
  // The number of a new id. REQUIRES: id != 0 and it is not there.
  uint64_t Insert(uint64_t id);

  // Many ids are found a block at a time, in stages with other work between them, while memory comes: Begin, FetchHome of each, and a
  // while later Look, and again later Resolve. Then numbers[i] is that of ids[i], or kNone. After an Insert, Locate comes before Look.
  class Block;
  void Begin(absl::Span<const uint64_t> ids, Block& block) const;  // at most Block::kSize
  void Locate(Block& block) const;
  static void FetchHome(const Block& block, size_t i);
  template <kernels::InstructionSet kSet>
  void Look(Block& block) const;
  template <kernels::InstructionSet kSet>
  void Resolve(Block& block) const;

 private:
  static constexpr int kColumnBits = 10, kSlotsPerLine = 8;
  static constexpr uint64_t kNumColumns = uint64_t{1} << kColumnBits;
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t kLookAhead = 24;  // lines, when a column grows

  struct alignas(kCacheLine) Line {
    uint64_t slots[kSlotsPerLine];  // 0: free; lines fill from the first slot on

    // What the slot that is otherwise `wanted` says in its lowest `bits`; 0 if there is none. Without branches: which slot it is cannot
    // be predicted.
    template <kernels::InstructionSet kSet>
    uint64_t PlaceOf(uint64_t wanted, uint64_t bits) const {
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
    bool full() const { return slots[kSlotsPerLine - 1] != 0; }

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
    uint64_t SlotAt(uint64_t distance) const { return key | distance << place_bits; }
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
  // In halves of 32 bits, which vectors multiply too.
  static Home HomeOf(Hashed hash, uint64_t num_lines, uint64_t place_and_distance_bits) {
    const uint64_t low = (hash.place() & 0xffffffff) * num_lines, high = (hash.place() >> 32) * num_lines + (low >> 32);
    const uint64_t rest = high << 32 | (low & 0xffffffff);
    return {high >> 32, rest >> place_and_distance_bits << place_and_distance_bits, place_and_distance_bits - kDistanceBits};
  }
  static Home HomeOf(Hashed hash, uint32_t num_lines) { return HomeOf(hash, num_lines, PlaceAndDistanceBits(num_lines)); }
  // Lines of one number in all columns lie together, turned against those of others so that a column does not sit in one set of a cache.
  static uint64_t LineNumber(uint64_t column, uint64_t line) {
    return line << kColumnBits | ((column + 37 * line) & (kNumColumns - 1));
  }
  Line& LineAt(uint64_t column, uint64_t line) const {
    return reinterpret_cast<Line*>(lines_.data())[LineNumber(column, line)];
  }

  template <kernels::InstructionSet kSet>
  uint64_t FindHashed(Hashed hash) const;
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

class IdIndex::Block {
 public:
  static constexpr size_t kSize = 24;
  size_t count = 0;
  uint64_t numbers[kSize];

 private:
  friend class IdIndex;
  uint64_t hashes_[kSize], line_numbers_[kSize], keys_[kSize], place_bits_[kSize];
  const Line* homes_[kSize];
  size_t num_away_ = 0;
  uint8_t away_[kSize + 1];  // which are not at home
};

template <kernels::InstructionSet kSet>
inline uint64_t IdIndex::FindHashed(Hashed hash) const {
  const Column& column = columns_[hash.column()];
  const Home home = HomeOf(hash, column.num_lines);
  uint64_t at = home.line;
  for (uint64_t distance = 0; distance <= kMaxDistance; ++distance) {
    const Line& line = LineAt(hash.column(), at);
    const uint64_t found = line.PlaceOf<kSet>(home.SlotAt(distance), home.place_bits);
    if (found != 0) return (found - 1) << kColumnBits | hash.column();
    if (!line.full()) break;
    if (++at == column.num_lines) at = 0;
  }
  return kNone;
}

inline void IdIndex::Begin(absl::Span<const uint64_t> ids, Block& block) const {
  block.count = ids.size();
  // All of a block's length, which compiles to fewer instructions: what is left of the last one does no harm.
  uint64_t padded[Block::kSize] = {};
  const uint64_t* from = ids.data();
  if (ids.size() < Block::kSize) from = std::copy(ids.begin(), ids.end(), padded) - ids.size();
  for (size_t i = 0; i < Block::kSize; ++i) block.hashes_[i] = Hash(salt_, from[i]);
  Locate(block);
}

inline void IdIndex::Locate(Block& block) const {
  uint64_t num_lines[Block::kSize], bits[Block::kSize];
  const Column* const columns = columns_.data();
  for (size_t i = 0; i < Block::kSize; ++i) {
    const uint32_t of_column = columns[Hashed{block.hashes_[i]}.column()].num_lines;
    num_lines[i] = of_column;
    bits[i] = PlaceAndDistanceBits(of_column);
  }
  for (size_t i = 0; i < Block::kSize; ++i) {
    const Hashed hash{block.hashes_[i]};
    const Home home = HomeOf(hash, num_lines[i], bits[i]);
    block.line_numbers_[i] = LineNumber(hash.column(), home.line);
    block.keys_[i] = home.key;
    block.place_bits_[i] = home.place_bits;
  }
  const Line* const lines = reinterpret_cast<const Line*>(lines_.data());
  for (size_t i = 0; i < Block::kSize; ++i) block.homes_[i] = lines + block.line_numbers_[i];
}

// Inlined at once: g++ 12 takes a function that only prefetches for one without effect, and leaves its calls out.
__attribute__((always_inline)) inline void IdIndex::FetchHome(const Block& block, size_t i) { __builtin_prefetch(block.homes_[i]); }

template <kernels::InstructionSet kSet>
inline void IdIndex::Look(Block& block) const {
  size_t num_away = 0;
  for (size_t i = 0; i < block.count; ++i) {
    const uint64_t found = block.homes_[i]->PlaceOf<kSet>(block.keys_[i], block.place_bits_[i]);
    block.numbers[i] = (found - 1) << kColumnBits | Hashed{block.hashes_[i]}.column();
    block.away_[num_away] = static_cast<uint8_t>(i);
    num_away += found == 0;
  }
  block.num_away_ = num_away;
  for (size_t i = 0; i < num_away; ++i) {
    const size_t away = block.away_[i];
    if (!block.homes_[away]->full()) continue;
    const Hashed hash{block.hashes_[away]};
    const uint32_t num_lines = columns_[hash.column()].num_lines;
    const uint64_t next = HomeOf(hash, num_lines).line + 1;
    __builtin_prefetch(&LineAt(hash.column(), next == num_lines ? 0 : next));
  }
}

template <kernels::InstructionSet kSet>
inline void IdIndex::Resolve(Block& block) const {
  for (size_t i = 0; i < block.num_away_; ++i) {
    block.numbers[block.away_[i]] = FindHashed<kSet>({block.hashes_[block.away_[i]]});
  }
}

}  // namespace tandem::ps
