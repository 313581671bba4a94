// One worker's share of an embedding table: rows found by id, created on first use, changed only by Commit. It knows no
// network and no threads. A push is kept as it came (its bytes stay in the receive buffer) and linked to the other
// gradients of its row in (slice, sequence, arrival) order; Commit adds them up in f32 in that order and runs the
// optimizer once per row. So neither the number of trainers nor the order of arrival nor who owns the row shows in the bits.
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
#include "ps/client.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/row_index.h"
#include "ps/row_layout.h"
#include "ps/row_store.h"
#include "ps/wire_rows.h"

namespace tandem::ps {

// InvalidArgument, naming the field, unless a table can be made of it.
absl::Status CheckTableSpec(const TableSpec& spec);
// InvalidArgument, naming table and id, if one of `count` gradient rows has a NaN or an infinity. `ids` u64[count] at any alignment.
absl::Status CheckGradients(const TableSpec& spec, const void* ids, const WireRows& gradients, size_t count);

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
  size_t memory_bytes() const { return rows_.record_bytes() + rows_.index_bytes(); }

  // Where the row lives until the next one is created; the header is null if there is none.
  RowView Find(uint64_t id) const;

  // In Pull and Accumulate, row i of the caller's array is the one at positions[i]; no positions: row i.
  // REQUIRES: ids distinct, none 0.

  // Writes each id's weights to `rows` [*, dim], at any alignment. An absent row is created first or, without `create`, only computed.
  void Pull(absl::Span<const uint64_t> ids, bool create, void* rows, absl::Span<const uint32_t> positions = {},
            WireFormat format = WIRE_F32);
  // Adds `gradients` [*, dim] to the pending step; `owner` keeps them alive until Commit. Absent rows are created by Commit.
  // REQUIRES: CheckGradients.
  void Accumulate(uint32_t slice, uint64_t sequence, absl::Span<const uint64_t> ids, const WireRows& gradients,
                  std::shared_ptr<const void> owner, absl::Span<const uint32_t> positions = {});
  // Applies gradients [ids.size(), dim] (times `scale`) at once, as step `step`, one after the other. Absent rows are
  // created. REQUIRES: no other gradients pending; ids distinct but for rows that are there.
  void Update(uint64_t step, float learning_rate, float scale, absl::Span<const uint64_t> ids, const float* gradients);
  // Sum over rows of the squared norm of the row's pending gradient: f64 in a fixed order per row, then unsigned fixed point
  // with 64 fraction bits, saturating. So it does not depend on the order of rows or on who owns them.
  absl::uint128 GradientNorm();
  // Applies the pending gradients (times `scale`) as step `step`, or with `skip` drops them; none are pending afterwards.
  void Commit(uint64_t step, float learning_rate, float scale, bool skip);

  // The share of params_hash (core decision 9): weights and slots of rows that were ever committed.
  HashResult Hash() const;
  // Every row, as a checkpoint needs it.
  void ForEachRow(absl::FunctionRef<void(const RowView&)> visit) const;
  // Adds a saved row; `values` [layout().value_bytes()] are its weights and slots. False, changing nothing, if there is one with
  // its id. REQUIRES: header.id != 0.
  bool Restore(const RowHeader& header, const char* values);

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Push {
    uint32_t slice;
    uint64_t sequence;
    WireRows gradients;
    std::shared_ptr<const void> owner;
  };
  // One gradient row of a push, linked to the next one of the same id.
  struct Pending {
    const char* gradient;
    uint32_t push;
    uint32_t next;
  };
  struct PendingRow {
    uint32_t head, tail;  // into pending_
    uint32_t count;
  };

  // A new row's record. REQUIRES: there is none with this id.
  char* Create(uint64_t id);
  // A new row's weights as Pull shows them.
  void FirstWeights(uint64_t id, float* weights);
  // One optimizer step with a gradient that is the sum of `count`.
  void Apply(char* record, const float* gradient, uint32_t count, uint64_t step, float learning_rate, float scale);
  void Link(uint64_t id, uint32_t entry);
  bool Before(uint32_t a, uint32_t b) const;
  // The gradient of an entry as f32, in `values` [dim].
  void Decode(const Pending& entry, float* values) const;
  // Fetches what SumPending will read first.
  void FetchGradient(const PendingRow& row) const;
  // The sum of the gradients pending for one row, in sum_. Inlined into loops compiled for the widest vectors.
  void SumPending(const PendingRow& row);
  void DropPending();

  const TableSpec spec_;
  const std::unique_ptr<SparseOptimizer> optimizer_;
  const RowLayout layout_;
  RowStore rows_;

  std::vector<Push> pushes_;
  std::vector<Pending> pending_;
  RowIndex pending_index_;             // id -> place in pending_rows_ and pending_ids_
  std::vector<uint64_t> pending_ids_;  // in order of first arrival
  std::vector<PendingRow> pending_rows_;
  std::vector<float> sum_;      // [dim]
  std::vector<float> addend_;   // [dim]: what is added to it next
  std::vector<float> weights_;  // [dim]: of a row on its way between storage and f32
  std::vector<char> first_;     // a record's weights, while they are only looked at
};

}  // namespace tandem::ps
