// One worker's share of an embedding table: rows found by id, created on first use, changed only by
// Commit. A pushed gradient stays in its receive buffer, next to the other gradients of its row
// (PendingGradients). Commit adds a row's gradients in f32 in (slice, trainer, sequence, position)
// order and runs the optimizer once per row (UpdateQueue). So the bits depend neither on the order
// of arrival nor on the row's owner. In modes other than LAZY, the next use of a row runs the steps
// that the row missed (LazyCatchUp). A row that was never committed is a function of its id and the
// table's seed.
// Thread rule: one thread; no network. Rows may move when a row is created.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/embedding.pb.h"
#include "ps/optimizer/lazy_catch_up.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/store/gradient_sums.h"
#include "ps/store/pending_gradients.h"
#include "ps/store/row_number_cache.h"
#include "ps/store/row_store.h"
#include "ps/store/row_values.h"
#include "ps/store/shared_sums.h"
#include "ps/store/update_queue.h"
#include "ps/wire/row_layout.h"
#include "ps/wire/statistics.h"
#include "ps/wire/step.h"
#include "ps/wire/value_guard.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

class Table {
 public:
  // REQUIRES: CheckTableSpec(spec).ok() (ps/store/spec_check.h).
  explicit Table(const TableSpec& spec);
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const TableSpec& spec() const { return spec_; }
  const RowLayout& layout() const { return layout_; }
  size_t num_rows() const { return rows_.size(); }
  // Bytes of rows, their index, and pending bits.
  size_t memory_bytes() const {
    return rows_.record_bytes() + rows_.index_bytes() + pending_.memory_bytes();
  }

  // Returns the row's record, valid until a row is created. The header is null if the row is
  // absent.
  RowView Find(uint64_t id) const;

  // In Pull and Accumulate, the row of ids[i] in the caller's array is row positions[i], or row i
  // if there are no positions.
  // REQUIRES: ids are distinct, none is 0.

  // Writes each id's weights after the last committed step to `rows` [*, dim], encoded in `format`.
  // An absent row is created first or, without `create`, only computed. `step` is the step that
  // trains with the rows; 0 if no step does.
  void Pull(uint64_t step, absl::Span<const uint64_t> ids, bool create, void* rows,
            absl::Span<const uint32_t> positions = {}, WireFormat format = WIRE_F32);
  // Computes this table's share of sums over rows. Writes the weights of ids[i]
  // to row positions[i] of the memory that `sums` gathers, and arrives at every block. `positions`
  // is ascending; without positions, ids[i] is row i. Ids may repeat.
  void PullSums(uint64_t step, absl::Span<const uint64_t> ids, bool create,
                absl::Span<const uint32_t> positions, SharedSums& sums);
  // Like Pull, for a caller that has rows. versions[i] - 1 is the version of the caller's row; 0
  // means no row. A row is written if it was committed more than `read_bound` times since. A row
  // that steps without a gradient change is also written. versions[i] becomes the written row's
  // version + 1, or 0 if the row is not written.
  void PullChanged(uint64_t step, absl::Span<const uint64_t> ids, bool create, uint32_t read_bound,
                   uint32_t* versions, void* rows, absl::Span<const uint32_t> positions = {},
                   WireFormat format = WIRE_F32);
  // For every row that PullChanged did not write: how many commits the caller's row lacked.
  const StepCounts& left_out() const { return left_out_; }
  // Adds `gradients` [*, dim] to the pending step. `owner` keeps the gradients alive until Commit.
  // Commit creates absent rows. Ids may repeat if positions ascend.
  // REQUIRES: gradients are finite if the table's policy is REJECT; the bits of `sequence` above
  // kSequenceBits are the trainer's number.
  void Accumulate(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids,
                  const WireRows& gradients, std::shared_ptr<const void> owner,
                  absl::Span<const uint32_t> positions = {});
  // Sum over rows of the squared norm of the row's pending gradient. A row's norm is f64 in a fixed
  // order. The sum is saturating unsigned fixed point with 64 fraction bits. So the sum depends
  // neither on the order of rows nor on their owners.
  absl::uint128 GradientNorm();
  // Applies the pending gradients, times `scale`, as step `step`, or drops them with `skip`.
  // Afterwards none are pending. Where trainers commit one by one, a step has several commits, in
  // any order. CATCH_UP then counts the steps from the row's last step to this one, if any, and
  // DENSE_EQUIVALENT has no meaning.
  void Commit(uint64_t step, double learning_rate, float scale, bool skip);
  // GradientSums::overflow.
  const absl::Status& overflow() const { return sums_.overflow(); }
  // Forgets the pending gradients, as if they had never come.
  void DropPending();
  // Makes `step` the last committed step. Every row is current as of `step`.
  // REQUIRES: nothing was committed.
  void BeginAfter(uint64_t step) { missed_.BeginAfter(step); }
  // Call before rows are saved. Brings up to the last step the rows whose missed steps a file
  // cannot tell.
  void PrepareSave();

  // For a dense table.
  // REQUIRES: CheckRowWidth accepts `width`.

  // True if the row exists and its first numbers differ from `values` [width], which may have any
  // alignment.
  bool Differs(uint64_t id, const char* values, size_t width) const;
  // Creates the row with these first numbers, as of step `step`. Leaves an existing row as it is.
  // REQUIRES: !Differs(id, values, width).
  void Assign(uint64_t id, const char* values, size_t width, uint64_t step);
  // Returns false if the row is absent.
  bool Read(uint64_t id, float* values, size_t width) const;

  // This table's share of params_hash: the hash of weights and slots of rows that were ever
  // committed. DENSE_EQUIVALENT hashes rows after the last step. CATCH_UP hashes rows as stored,
  // after each row's last gradient.
  HashResult Hash();
  // Statistics of gradients that were committed or skipped.
  const ValueGuardStatistics& guarded() const { return sums_.guarded(); }
  // Visits every row, as a checkpoint needs it.
  void ForEachRow(absl::FunctionRef<void(const RowView&)> visit) const;
  // Adds a saved row. `values` [layout().value_bytes()] are its weights and slots. Returns false,
  // changing nothing, if a row has this id.
  // REQUIRES: header.id != 0.
  bool Restore(const RowHeader& header, const char* values);

 private:
  // Returns a new row's record.
  // REQUIRES: no row has this id.
  [[gnu::noinline]] char* Create(uint64_t id);
  char* FindOrCreate(uint64_t id);
  // Returns the number of each id's row, or IdIndex::kNone; valid until the next call. Finds all
  // numbers of a call before the first row is read. Rows read in between would drive repeated index
  // lines out of the cache.
  absl::Span<const uint64_t> FindNumbers(absl::Span<const uint64_t> ids);
  // Calls show(numbers) with the number of each id's row, or IdIndex::kNone. Creates
  // absent rows if `create`. Keeps the numbers for the step's pushes.
  template <class Visit>
  void PullFound(uint64_t step, absl::Span<const uint64_t> ids, bool create, const Visit& show);
  // Writes rows as Pull documents. Row i goes to rows[i], or rows[positions[i]].
  void Show(uint64_t step, absl::Span<const uint64_t> ids, absl::Span<const uint64_t> numbers,
            char* rows, absl::Span<const uint32_t> positions, WireFormat format);
  // Writes a row that is not sent as it is stored. `shows`: tells the optimizer what was shown.
  [[gnu::noinline]] void ShowConverted(const RowView& row, bool shows, WireFormat format,
                                       char* target);
  // Writes the first weights of an id without a row to `target`, encoded in `format`.
  [[gnu::noinline]] void ShowFirst(uint64_t id, WireFormat format, char* target);
  void BringUpAll();
  // Runs the optimizer for every row with pending gradients.
  void UpdateRows(uint64_t step, double learning_rate, float scale);

  const TableSpec spec_;
  const std::unique_ptr<SparseOptimizer> optimizer_;
  LazyCatchUp missed_;
  const RowLayout layout_;
  RowValues values_;
  RowStore rows_;
  PendingGradients pending_;
  GradientSums sums_;
  UpdateQueue updates_;
  RowNumberCache pulled_;          // numbers of rows pulled since the last commit
  std::vector<uint64_t> numbers_;  // numbers of a call's ids
  std::vector<uint32_t> places_;   // places of a block's rows
  std::vector<float> shown_;       // [dim]: a row on its way to a caller
  StepCounts left_out_;
};

}  // namespace tandem::ps
