// A trainer's copies of one table's rows, and the window in which they are trained (geo_client.h).
// The window knows its rows, their first values from the servers, and which rows were updated.
// Copies are f32 rows of a Table with the job's optimizer. Rows of earlier windows stay, because
// the copy keeps their optimizer state.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "ps/client/row_client.h"
#include "ps/store/table.h"
#include "ps/wire/row_index.h"

namespace tandem::ps {

// Rows of a pull that are not in the window.
struct MissingRows {
  std::vector<uint64_t> ids;
  std::vector<uint32_t> places;  // places in the pull's segment
  std::vector<float> rows;       // [ids, dim], as servers have them
};

class CopiedTable {
 public:
  explicit CopiedTable(const TableSpec& spec);

  const TableSpec& spec() const { return table_.spec(); }
  size_t dim() const { return table_.spec().dim(); }
  size_t num_rows() const { return table_.num_rows(); }
  size_t memory_bytes() const { return table_.memory_bytes(); }
  ValueGuardStatistics guarded() const;

  // Writes the rows in the window, for step `step`. Returns the other rows, with memory for their
  // values.
  MissingRows Read(uint64_t step, const PullSegment& segment);
  // Adds rows as the servers have them to the window. A row that is in the window already stays as
  // it is. The rows in `fetched` become the rows of the window.
  void Enter(uint64_t step, MissingRows& fetched);
  // InvalidArgument unless ids are distinct and in the window. OutOfRange if a gradient is not
  // finite and the table rejects such gradients.
  absl::Status CheckPush(uint32_t trainer, uint64_t step, const PushSegment& segment);
  // Adds a copy of the gradients. `order` is the `sequence` of Table::Accumulate.
  // REQUIRES: CheckPush was Ok.
  void Accumulate(uint32_t slice, uint64_t order, const PushSegment& segment);
  absl::uint128 GradientNorm() { return table_.GradientNorm(); }
  // Returns true if a row was updated.
  bool Commit(const CommitArgs& args);
  // Table::overflow of the copies.
  const absl::Status& overflow() const { return table_.overflow(); }
  // Ends the window. Adds the ids of updated rows, ascending, and their gradients (first value -
  // value) / num_trainers. With these gradients, plain SGD at rate 1 makes the servers' rows follow
  // the copies. OutOfRange, naming a row, if a number is not finite.
  absl::Status TakeDeltas(const CommitArgs& args, uint32_t trainer, uint32_t num_trainers,
                          std::vector<uint64_t>* ids, std::vector<float>* gradients);

 private:
  Table table_;
  ValueGuardStatistics rejected_;
  RowIndex window_;  // id -> place in the three vectors below
  std::vector<uint64_t> ids_;
  std::vector<float> first_values_;  // [ids, dim]
  std::vector<bool> updated_;
  std::vector<uint64_t> pending_;  // places with gradients in the open step
};

}  // namespace tandem::ps
