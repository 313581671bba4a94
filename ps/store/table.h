// One worker's share of an embedding table: rows found by id, created on first use, changed only by Commit. It knows no
// network and no threads. A push is kept as it came (its bytes stay in the receive buffer) and put
// beside the other gradients of its row (PendingGradients); Commit adds them up in f32 in (slice, sequence, arrival) order and runs the
// optimizer once per row. So neither the number of trainers nor the order of arrival nor who owns the row shows in the bits.
// In modes other than LAZY the steps that a row missed reach it when it is next used (LazyCatchUp). Then, as everywhere, a row that was
// never committed is what its id and the table's seed make of it, whatever steps have passed.
// Thread rule: one thread. Rows may move when one is created.
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
#include "ps/wire/step.h"
#include "ps/optimizer/lazy_catch_up.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/store/pending_gradients.h"
#include "ps/store/row_number_cache.h"
#include "ps/wire/row_layout.h"
#include "ps/store/row_store.h"
#include "ps/store/shared_sums.h"
#include "ps/wire/statistics.h"
#include "ps/wire/value_guard.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

// InvalidArgument, naming the field, unless a table can be made of it.
absl::Status CheckTableSpec(const TableSpec& spec);
// InvalidArgument unless `width` is that of rows to assign or read (ps/client/client.h).
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
  // Of rows and their index.
  size_t memory_bytes() const { return rows_.record_bytes() + rows_.index_bytes() + pending_.memory_bytes(); }

  // Where the row lives until the next one is created; the header is null if there is none.
  RowView Find(uint64_t id) const;

  // In Pull and Accumulate, row i of the caller's array is the one at positions[i]; no positions: row i.
  // REQUIRES: ids distinct, none 0.

  // Writes each id's weights, after the last step committed, to `rows` [*, dim], as `format` has them. An absent row is created first
  // or, without `create`, only computed. `step` will train with them; 0: none will.
  void Pull(uint64_t step, absl::Span<const uint64_t> ids, bool create, void* rows, absl::Span<const uint32_t> positions = {},
            WireFormat format = WIRE_F32);
  // Adds the weights of ids[i], as Pull shows them in f32, times weights[i] (at any alignment; null: 1), to `sums` [*, dim] at
  // positions[i], in the order of the ids, which may repeat.
  void PullSums(uint64_t step, absl::Span<const uint64_t> ids, bool create, absl::Span<const uint32_t> positions, const void* weights,
                float* sums);
  // This table's share of sums that several tables have rows of: writes the weights of ids[i], which may repeat, where positions[i], which
  // ascends, gathers in `sums`, and arrives at every block.
  void PullShared(uint64_t step, absl::Span<const uint64_t> ids, bool create, absl::Span<const uint32_t> positions, SharedSums& sums);
  // As Pull, for a caller that has rows: versions[i] - 1 is the version of its own, 0 means none. A row is written only if it was
  // committed more than `read_bound` times since, or steps without a gradient move it; versions[i] becomes the written row's version + 1,
  // or 0.
  void PullChanged(uint64_t step, absl::Span<const uint64_t> ids, bool create, uint32_t read_bound, uint32_t* versions, void* rows,
                   absl::Span<const uint32_t> positions = {}, WireFormat format = WIRE_F32);
  // Of every row that PullChanged did not write: how many commits the caller's lacked.
  const StepCounts& left_out() const { return left_out_; }
  // Adds `gradients` [*, dim] to the pending step; `owner` keeps them alive until Commit. Absent
  // rows are created by Commit. Ids may repeat if positions ascend. REQUIRES: finite with REJECT; the trainer's number is in `sequence`
  // above its kSequenceBits bits.
  void Accumulate(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids, const WireRows& gradients,
                  std::shared_ptr<const void> owner, absl::Span<const uint32_t> positions = {});
  // Applies gradients [ids.size(), dim] (times `scale`) at once, as step `step`, one after the other. Absent rows are
  // created. REQUIRES: no other gradients pending; ids distinct but for rows that are there.
  void Update(uint64_t step, double learning_rate, float scale, absl::Span<const uint64_t> ids, const float* gradients);
  // Sum over rows of the squared norm of the row's pending gradient: f64 in a fixed order per row, then unsigned fixed point
  // with 64 fraction bits, saturating. So it does not depend on the order of rows or on who owns them.
  absl::uint128 GradientNorm();
  // Applies the pending gradients (times `scale`) as step `step`, or with `skip` drops them; none are pending afterwards. Where
  // trainers commit one by one, a step has several, in any order. Then CATCH_UP counts the steps from the row's last to this one, if
  // there are any, and DENSE_EQUIVALENT has no meaning.
  // A row whose finite gradients add up to an infinity is a row with a gradient that is not finite: SKIP leaves the row as it was, CLIP
  // makes those numbers 0, REJECT leaves the row as it was and sets overflow().
  void Commit(uint64_t step, double learning_rate, float scale, bool skip);
  // OutOfRange, naming the row with the smallest id, once a Commit has met such a sum under REJECT. Other rows have that step: the table
  // is of no use any more.
  const absl::Status& overflow() const { return overflow_; }
  // Forgets the pending gradients, as if they had not come.
  void DropPending();
  // Makes `step` the last one committed. Of those before it every row has had its share. REQUIRES: nothing was committed.
  void BeginAfter(uint64_t step) { missed_.BeginAfter(step); }
  // Before rows are saved: brings up those whose missed steps a file does not tell. They then stand after the last step.
  void PrepareSave();

  // Of a dense table. REQUIRES: a width that CheckRowWidth lets pass.

  // Whether the row exists with other first numbers than `values` [width], at any alignment.
  bool Differs(uint64_t id, const char* values, size_t width) const;
  // Creates the row with these first numbers, as of step `step`, or leaves it as it is. REQUIRES: !Differs.
  void Assign(uint64_t id, const char* values, size_t width, uint64_t step);
  // False if there is no such row.
  bool Read(uint64_t id, float* values, size_t width) const;

  // The share of params_hash (core decision 9): weights and slots of rows that were ever committed. DENSE_EQUIVALENT: after the last
  // step; CATCH_UP: as they are kept, after each row's last gradient.
  HashResult Hash();
  // Of gradients that were committed or skipped.
  const ValueGuardStatistics& guarded() const { return guarded_; }
  // Every row, as a checkpoint needs it.
  void ForEachRow(absl::FunctionRef<void(const RowView&)> visit) const;
  // Adds a saved row; `values` [layout().value_bytes()] are its weights and slots. False, changing nothing, if there is one with
  // its id. REQUIRES: header.id != 0.
  bool Restore(const RowHeader& header, const char* values);

 private:
  // A new row's record. REQUIRES: there is none with this id.
  [[gnu::noinline]] char* Create(uint64_t id);
  char* FindOrCreate(uint64_t id);
  // The number of each id's row, or IdIndex::kNone, until the next call. All of a call are found before the first is looked at: lines of the
  // index that come again are in a cache then, which rows between them would drive out.
  absl::Span<const uint64_t> FindNumbers(absl::Span<const uint64_t> ids);
  // show(numbers, all_there) with the number of each id's row, which it creates if it may, or IdIndex::kNone. Keeps them for the step's
  // pushes.
  template <class Visit>
  void PullFound(uint64_t step, absl::Span<const uint64_t> ids, bool create, const Visit& show);
  // What Pull says of rows that it has found, all of them or not. Row i goes to rows[i], or rows[positions[i]].
  void Show(uint64_t step, absl::Span<const uint64_t> ids, absl::Span<const uint64_t> numbers, bool all_there, char* rows,
            absl::Span<const uint32_t> positions, WireFormat format);
  // A new row's weights as Pull shows them.
  void FirstWeights(uint64_t id, float* weights);
  // Of an id without a row: what it would begin with.
  [[gnu::noinline]] void ShowFirst(uint64_t id, WireFormat format, char* target);
  RandomKey RoundingKey(uint64_t id) const;
  // Runs the steps up to `step` that a row has missed; false if there are none. `weights` are its weights in f32, where they are kept
  // or in weights_.
  [[gnu::noinline]] bool BringUp(const RowView& row, float* weights, uint64_t step);
  // Likewise up to the last step committed, wherever weights are kept.
  void BringUpStored(const RowView& row);
  void BringUpAll();
  // Of a CATCH_UP row with weight decay, as Pull shows it.
  void ShowDecayed(const RowHeader& header, float* weights) const;
  // What steps without a gradient do to a row that is looked at: its record is brought up, or its weights are shown decayed.
  bool BringsUpWhenPulled() const;
  bool ShowsDecayed() const;
  // The optimizer's step with `sum`, which is that of `count` gradients, at the latest when Flush is called: until then record and sum stay
  // where they are. REQUIRES: UpdatesInPlace() if the row waits already.
  [[gnu::noinline]] void EnqueueSum(char* record, const float* sum, uint32_t count, float scale, uint64_t step, double learning_rate);
  // Likewise of a row whose missed steps have been run.
  void Enqueue(char* record, const RowUpdate& update, uint32_t count, uint64_t step, double learning_rate);
  [[gnu::noinline]] void Flush(uint64_t step, double learning_rate);
  // Whether a row's update reads nothing but its record.
  bool UpdatesInPlace() const { return layout_.storage() == STORED_F32 && !missed_.matter(); }
  // Commit of a row of which anything may be so.
  [[gnu::noinline]] void CommitRow(size_t pending_row, char* record, float scale, uint64_t step, double learning_rate);
  // A gradient as f32, in `values` [dim], which it returns.
  const float* Decode(const PendingGradients::Gradient& gradient, float* values) const;
  // Fetches what SumPending will read.
  void FetchGradients(size_t pending_row, const RecordPrefetch& lines) const;
  // Of the row that is so manieth among the pending ones: the sum of its gradients, in `sum` [dim].
  void SumPending(size_t pending_row, float* sum);
  // Like SumPending, but treats what is not finite as the table's policy says. Returns how many gradients were added; 0: the row has none.
  // `guarded` counts and may be null.
  uint32_t SumFinite(size_t pending_row, uint64_t step, float* sum, ValueGuardStatistics* guarded);
  [[gnu::noinline]] uint32_t SumMended(size_t pending_row, uint64_t step, float* sum, ValueGuardStatistics* guarded);
  // Treats a sum of finite gradients that is not finite. Returns how many of the `added` gradients count. `trainer` sent the gradient
  // with which the sum became so.
  uint32_t MendSum(size_t pending_row, uint64_t step, uint32_t trainer, uint32_t added, float* sum, ValueGuardStatistics* guarded);
  // `scale`, or less if `sum` times it were longer than max_row_norm.
  float ClippedScale(const float* sum, float scale);

  const TableSpec spec_;
  const std::unique_ptr<SparseOptimizer> optimizer_;
  LazyCatchUp missed_;
  const RowLayout layout_;
  RowStore rows_;

  PendingGradients pending_;
  RowNumberCache pulled_;           // since the last commit
  std::vector<uint64_t> numbers_;  // of a call's ids
  std::vector<uint32_t> places_;   // of a block's
  // Rows on their way to the optimizer: the first num_updates_.
  struct Waiting {
    char* record;
    uint32_t count;  // of gradients
  };
  const size_t rows_at_once_;
  size_t num_updates_ = 0;
  std::vector<RowUpdate> updates_;
  std::vector<Waiting> waiting_;
  std::vector<float> sums_;     // [rows_at_once, dim]
  std::vector<float> addend_;   // [dim]: what is added to a sum next
  std::vector<float> weights_;  // [rows_at_once, dim]: of rows on their way between storage and f32
  std::vector<float> shown_;    // [dim]: of a row on its way to a caller
  std::vector<char> first_;     // a record's weights, while they are only looked at
  ValueGuardStatistics guarded_;
  absl::Status overflow_;
  uint64_t overflow_id_ = 0;  // of the row that overflow_ names
  StepCounts left_out_;
};

}  // namespace tandem::ps
