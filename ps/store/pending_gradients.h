// The gradients that wait for a step's end, row by row: kept as they came (their bytes stay in the receive buffer), those of a row in
// (slice, sequence, arrival) order. A row is known by its number in the table's RowStore: one bit a row says that it has a gradient.
// Only rows with several, and those that the table has not, enter a hash table.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "ps/wire/hash_seed.h"
#include "ps/store/id_index.h"
#include "ps/wire/row_index.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

class PendingGradients {
 public:
  static constexpr uint64_t kAbsent = IdIndex::kNone;  // in place of a number: there was no such row
  // One gradient row of a push.
  struct Gradient {
    const char* bytes;
    uint32_t push;
    uint32_t next;  // of the same row, or kNone
  };

  // Adds a push of rows of `row_bytes`; that of ids[i] is at positions[i], without positions at i. `numbers` are those of the ids, or
  // kAbsent, all below `end_number`. `owner` keeps the bytes alive until Clear. REQUIRES: ids distinct, none 0.
  void Add(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids, absl::Span<const uint64_t> numbers,
           uint64_t end_number, const WireRows& gradients, size_t row_bytes, std::shared_ptr<const void> owner,
           absl::Span<const uint32_t> positions);
  // Forgets everything.
  void Clear();

  // Rows, in the order in which they came first.
  size_t num_rows() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  absl::Span<const uint64_t> ids() const { return ids_; }
  // kAbsent of a row that was not there when its gradients came.
  absl::Span<const uint64_t> numbers() const { return numbers_; }

  // Puts each row's gradients in order. Before the following, after the last Add.
  void Link();
  uint32_t count(size_t row) const { return rows_[row].count; }
  const Gradient& first(size_t row) const { return gradients_[rows_[row].head]; }
  // Null after the row's last.
  const Gradient* next(const Gradient& gradient) const { return gradient.next == kNone ? nullptr : &gradients_[gradient.next]; }
  // Whether every gradient is an array of floats.
  bool all_floats() const { return all_floats_; }
  WireFormat FormatOf(const Gradient& gradient) const { return pushes_[gradient.push].gradients.format(); }
  uint64_t SequenceOf(const Gradient& gradient) const { return pushes_[gradient.push].sequence; }

  size_t memory_bytes() const { return (pending_bits_.capacity() + repeated_bits_.capacity()) * sizeof(uint64_t); }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Push {
    uint32_t slice;
    uint64_t sequence;
    WireRows gradients;
    std::shared_ptr<const void> owner;
  };
  struct Row {
    uint32_t head, tail;  // into gradients_
    uint32_t count;
  };
  // Another gradient of a row that has one.
  struct Repeated {
    uint64_t number;
    uint32_t gradient;
  };

  void AddRow(uint64_t id, uint64_t number, uint32_t gradient);
  void AddAbsent(uint64_t id, uint32_t gradient);
  void Insert(Row& row, uint32_t gradient);
  bool Before(uint32_t a, uint32_t b) const;

  std::vector<Push> pushes_;
  std::vector<Gradient> gradients_;
  std::vector<uint64_t> ids_, numbers_;  // of rows_
  std::vector<Row> rows_;
  std::vector<Repeated> repeated_;  // in order of arrival; not in their rows yet
  std::vector<uint64_t> pending_bits_, repeated_bits_;  // by number
  bool all_floats_ = true;
  RowIndex absent_{0, HashSeed() | 1};  // id -> place in rows_, of rows that were not there
};

}  // namespace tandem::ps
