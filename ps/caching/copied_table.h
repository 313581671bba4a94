// A trainer's copies of one table's rows, and the window in which they are trained (client_geo.h): which rows are in use, what they were
// when they came from the servers, and which were updated since. Copies are rows of a Table, in f32, with the job's optimizer; those of
// earlier windows stay for their optimizer's state.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ps/client/client.h"
#include "ps/wire/row_index.h"
#include "ps/store/table.h"

namespace tandem::ps {

// Rows of a pull that the window lacks.
struct MissingRows {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> places;  // in the pull's segment
  std::vector<float> rows;       // as servers have them
};

class CopiedTable {
 public:
  explicit CopiedTable(const TableSpec& spec);

  const TableSpec& spec() const { return table_.spec(); }
  size_t dim() const { return table_.spec().dim(); }
  size_t num_rows() const { return table_.num_rows(); }
  size_t memory_bytes() const { return table_.memory_bytes(); }
  ValueGuardStatistics guarded() const;

  // Writes the rows that the window has, for step `step`. Of the others memory for rows is made.
  MissingRows Read(uint64_t step, const PullSegment& segment);
  // Rows as the servers have them. One that the window has already stays as it is, and its row in `fetched` becomes that.
  void Enter(uint64_t step, MissingRows& fetched);
  // InvalidArgument unless the window has these distinct rows, and the gradients are finite or the table mends them.
  absl::Status CheckPush(uint32_t trainer, uint64_t step, const PushSegment& segment);
  // Copies the gradients; `order` as Table's `sequence`. REQUIRES: CheckPush.
  void Accumulate(uint32_t slice, uint64_t order, const PushSegment& segment);
  absl::uint128 GradientNorm() { return table_.GradientNorm(); }
  // Whether a row was updated.
  bool Commit(const CommitArgs& args);
  // As Table's.
  const absl::Status& overflow() const { return table_.overflow(); }
  // Adds ids, ascending, and (first value - value) / num_trainers of the rows that were updated: the gradient that makes servers' rows,
  // plain SGD at rate 1, follow. The window ends. OutOfRange, naming a row, if one of these numbers is not finite.
  absl::Status TakeDeltas(const CommitArgs& args, uint32_t trainer, uint32_t num_trainers, std::vector<uint64_t>* ids,
                          std::vector<float>* gradients);

 private:
  Table table_;
  ValueGuardStatistics rejected_;
  RowIndex window_;  // id -> place in the three below
  std::vector<uint64_t> ids_;
  std::vector<float> first_values_;  // [ids, dim]
  std::vector<bool> updated_;
  std::vector<uint64_t> pending_;  // places with gradients in the open step
};

}  // namespace tandem::ps
