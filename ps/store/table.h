// One worker's share of an embedding table: rows found by id, created on first use, changed only by
// Commit. A pushed gradient stays in its receive buffer, next to the other gradients of its row
// (PendingGradients). Commit adds a row's gradients in f32 in (slice, sequence, arrival) order and
// runs the optimizer once per row. So the bits depend neither on the number of trainers, nor on the
// order of arrival, nor on the row's owner. In modes other than LAZY, the next use of a row runs
// the steps that the row missed (LazyCatchUp). A row that was never committed is a function of its
// id and the table's seed.
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
#include "ps/store/pending_gradients.h"
#include "ps/store/row_number_cache.h"
#include "ps/store/row_store.h"
#include "ps/store/shared_sums.h"
#include "ps/wire/row_layout.h"
#include "ps/wire/statistics.h"
#include "ps/wire/step.h"
#include "ps/wire/value_guard.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

// InvalidArgument, naming the field, if no table can be made of the spec.
absl::Status CheckTableSpec(const TableSpec& spec);
// InvalidArgument unless rows of `width` numbers can be assigned and read
// (ps/client/table_admin.h).
absl::Status CheckRowWidth(const TableSpec& spec, size_t width);

class Table {
 public:
  // REQUIRES: CheckTableSpec(spec).ok().
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
  // Computes sums[positions[i]] += weights[i] * row(ids[i]), in the order of the ids, with rows as
  // Pull shows them in f32. `sums` is [*, dim]. `weights` are f32 at any alignment; null means all
  // 1. Ids may repeat.
  void PullSums(uint64_t step, absl::Span<const uint64_t> ids, bool create,
                absl::Span<const uint32_t> positions, const void* weights, float* sums);
  // Computes this table's share of sums over rows of several tables. Writes the weights of ids[i]
  // to row positions[i] of the memory that `sums` gathers, and arrives at every block. `positions`
  // is ascending. Ids may repeat.
  void PullShared(uint64_t step, absl::Span<const uint64_t> ids, bool create,
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
  // Applies gradients [ids.size(), dim], times `scale`, at once as step `step`, one after the
  // other. Creates absent rows.
  // REQUIRES: no other gradients are pending; only ids of rows that exist repeat.
  void Update(uint64_t step, double learning_rate, float scale, absl::Span<const uint64_t> ids,
              const float* gradients);
  // Sum over rows of the squared norm of the row's pending gradient. A row's norm is f64 in a fixed
  // order. The sum is saturating unsigned fixed point with 64 fraction bits. So the sum depends
  // neither on the order of rows nor on their owners.
  absl::uint128 GradientNorm();
  // Applies the pending gradients, times `scale`, as step `step`, or drops them with `skip`.
  // Afterwards none are pending. Where trainers commit one by one, a step has several commits, in
  // any order. CATCH_UP then counts the steps from the row's last step to this one, if any, and
  // DENSE_EQUIVALENT has no meaning.
  // A row whose finite gradients add up to an infinity counts as a row with a gradient that is not
  // finite. SKIP leaves the row as it was. CLIP sets the infinite numbers to 0. REJECT leaves the
  // row as it was and sets overflow().
  void Commit(uint64_t step, double learning_rate, float scale, bool skip);
  // OutOfRange, naming the row with the smallest id, after a Commit under REJECT met such a sum.
  // Other rows have the step, so the table is no longer usable.
  const absl::Status& overflow() const { return overflow_; }
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
  const ValueGuardStatistics& guarded() const { return guarded_; }
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
  // Calls show(numbers, all_there) with the number of each id's row, or IdIndex::kNone. Creates
  // absent rows if `create`. Keeps the numbers for the step's pushes.
  template <class Visit>
  void PullFound(uint64_t step, absl::Span<const uint64_t> ids, bool create, const Visit& show);
  // Writes found rows as Pull documents; all_there tells if every row was found. Row i goes to
  // rows[i], or rows[positions[i]].
  void Show(uint64_t step, absl::Span<const uint64_t> ids, absl::Span<const uint64_t> numbers,
            bool all_there, char* rows, absl::Span<const uint32_t> positions, WireFormat format);
  // Computes a new row's weights as Pull shows them.
  void FirstWeights(uint64_t id, float* weights);
  // Writes the first weights of an id without a row to `target`, encoded in `format`.
  [[gnu::noinline]] void ShowFirst(uint64_t id, WireFormat format, char* target);
  RandomKey RoundingKey(uint64_t id) const;
  // Runs the steps up to `step` that a row has missed. Returns false if there are none. `weights`
  // are the row's weights in f32: the stored ones, or a copy in weights_.
  [[gnu::noinline]] bool BringUp(const RowView& row, float* weights, uint64_t step);
  // Does the same up to the last committed step, for any storage.
  void BringUpStored(const RowView& row);
  void BringUpAll();
  // Decays the weights of a CATCH_UP row with weight decay, as Pull shows them.
  void ShowDecayed(const RowHeader& header, float* weights) const;
  // The effect of steps without a gradient on a pulled row: its record is brought up, or its shown
  // weights are decayed.
  bool BringsUpWhenPulled() const;
  bool ShowsDecayed() const;
  // Queues the optimizer's step with `sum`, the sum of `count` gradients; runs it in Flush at the
  // latest. Until then record and sum must stay in place.
  // REQUIRES: UpdatesInPlace() if the row is queued already.
  [[gnu::noinline]] void EnqueueSum(char* record, const float* sum, uint32_t count, float scale,
                                    uint64_t step, double learning_rate);
  // Queues a row whose missed steps have been run.
  void Enqueue(char* record, const RowUpdate& update, uint32_t count, uint64_t step,
               double learning_rate);
  [[gnu::noinline]] void Flush(uint64_t step, double learning_rate);
  // True if a row's update reads nothing but its record.
  bool UpdatesInPlace() const { return layout_.storage() == STORED_F32 && !missed_.matter(); }
  // Commits one row. This is the general path.
  [[gnu::noinline]] void CommitRow(size_t pending_row, char* record, float scale, uint64_t step,
                                   double learning_rate);
  // Decodes a gradient as f32 into `values` [dim], and returns `values`.
  const float* Decode(const PendingGradients::Gradient& gradient, float* values) const;
  // Prefetches the gradients that SumPending will read.
  void FetchGradients(size_t pending_row, const RecordPrefetch& lines) const;
  // Writes the sum of the gradients of the pending row with this index to `sum` [dim].
  void SumPending(size_t pending_row, float* sum);
  // Like SumPending, but applies the table's policy to numbers that are not finite. Returns how
  // many gradients were added; 0 means that the row has none. `guarded` counts, and may be null.
  uint32_t SumFinite(size_t pending_row, uint64_t step, float* sum, ValueGuardStatistics* guarded);
  [[gnu::noinline]] uint32_t SumMended(size_t pending_row, uint64_t step, float* sum,
                                       ValueGuardStatistics* guarded);
  // Applies the table's policy to a sum of finite gradients that is not finite. Returns how many of
  // the `added` gradients count. `trainer` sent the gradient that made the sum infinite.
  uint32_t MendSum(size_t pending_row, uint64_t step, uint32_t trainer, uint32_t added, float* sum,
                   ValueGuardStatistics* guarded);
  // Returns `scale`, or less if `sum` times `scale` were longer than max_row_norm.
  float ClippedScale(const float* sum, float scale);

  const TableSpec spec_;
  const std::unique_ptr<SparseOptimizer> optimizer_;
  LazyCatchUp missed_;
  const RowLayout layout_;
  RowStore rows_;

  PendingGradients pending_;
  RowNumberCache pulled_;          // numbers of rows pulled since the last commit
  std::vector<uint64_t> numbers_;  // numbers of a call's ids
  std::vector<uint32_t> places_;   // places of a block's rows
  // Rows queued for the optimizer: the first num_updates_ entries.
  struct Waiting {
    char* record;
    uint32_t count;  // number of gradients
  };
  const size_t rows_at_once_;
  size_t num_updates_ = 0;
  std::vector<RowUpdate> updates_;
  std::vector<Waiting> waiting_;
  std::vector<float> sums_;     // [rows_at_once, dim]
  std::vector<float> addend_;   // [dim]: the gradient to add next
  std::vector<float> weights_;  // [rows_at_once, dim]: f32 weights of queued rows
  std::vector<float> shown_;    // [dim]: a row on its way to a caller
  std::vector<char> first_;     // stored weights of a row that is only read
  ValueGuardStatistics guarded_;
  absl::Status overflow_;
  uint64_t overflow_id_ = 0;  // id of the row that overflow_ names
  StepCounts left_out_;
};

}  // namespace tandem::ps
