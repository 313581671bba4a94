// The gradients of the open step, row by row. Gradients are not copied: their bytes stay in the
// receive buffer. A row's gradients are in (slice, sequence, arrival) order. A row is known by its
// number in the table's RowStore. One bit per row says that the row has a gradient. Only rows with
// several gradients and rows absent from the table enter a hash table.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "ps/store/id_index.h"
#include "ps/wire/hash_seed.h"
#include "ps/wire/row_index.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

class PendingGradients {
 public:
  // The number of a row that is not in the table.
  static constexpr uint64_t kAbsent = IdIndex::kNone;
  // One gradient row of a push.
  struct Gradient {
    const char* bytes;
    uint32_t push;
    uint32_t next;  // next gradient of the same row, or kNone
  };

  // Adds a push of gradient rows of `row_bytes`. The gradient of ids[i] is row positions[i], or row
  // i if there are no positions. `numbers` are the numbers of the ids, or kAbsent, all below
  // `end_number`. `owner` keeps the bytes alive until Clear.
  // REQUIRES: ids are distinct, none is 0.
  void Add(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids,
           absl::Span<const uint64_t> numbers, uint64_t end_number, const WireRows& gradients,
           size_t row_bytes, std::shared_ptr<const void> owner,
           absl::Span<const uint32_t> positions);
  // Forgets everything.
  void Clear();

  // Number of rows. Rows are in the order of their first gradients.
  size_t num_rows() const { return ids_.size(); }
  bool empty() const { return ids_.empty(); }
  absl::Span<const uint64_t> ids() const { return ids_; }
  // The numbers of the rows, or kAbsent for a row that was absent when its gradients came.
  absl::Span<const uint64_t> numbers() const { return numbers_; }

  // Puts each row's gradients in order. Call Link after the last Add and before the functions
  // below.
  void Link();
  uint32_t count(size_t row) const { return rows_[row].count; }
  const Gradient& first(size_t row) const { return gradients_[rows_[row].head]; }
  // Returns the row's next gradient, or null after the last.
  const Gradient* next(const Gradient& gradient) const {
    return gradient.next == kNone ? nullptr : &gradients_[gradient.next];
  }
  // True if every gradient is an aligned array of floats.
  bool all_floats() const { return all_floats_; }
  WireFormat FormatOf(const Gradient& gradient) const {
    return pushes_[gradient.push].gradients.format();
  }
  uint64_t SequenceOf(const Gradient& gradient) const { return pushes_[gradient.push].sequence; }

  size_t memory_bytes() const {
    return (pending_bits_.capacity() + repeated_bits_.capacity()) * sizeof(uint64_t);
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Push {
    uint32_t slice;
    uint64_t sequence;
    WireRows gradients;
    std::shared_ptr<const void> owner;
  };
  struct Row {
    uint32_t head, tail;  // indices into gradients_
    uint32_t count;
  };
  // A further gradient of a row that already has one.
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
  std::vector<uint64_t> ids_, numbers_;  // ids and numbers of rows_
  std::vector<Row> rows_;
  std::vector<Repeated> repeated_;                      // in order of arrival; not linked yet
  std::vector<uint64_t> pending_bits_, repeated_bits_;  // one bit per row number
  bool all_floats_ = true;
  RowIndex absent_{0, HashSeed() | 1};  // id -> place in rows_, for absent rows
};

}  // namespace tandem::ps
