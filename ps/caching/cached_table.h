// The rows of one table that a trainer caches (RowCache). Keeps their versions, this trainer's
// updates and, with a write bound, gradients kept back. cached_client.h states what a row
// guarantees. A row with gradients kept back stays in the cache until they are pushed.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/embedding.pb.h"
#include "ps/caching/row_cache.h"
#include "ps/caching/step_gradients.h"
#include "ps/client/row_client.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {

struct CacheOptions {
  size_t rows_per_table = 0;
  uint32_t read_bound = 0;
  uint32_t write_bound = 0;
  uint32_t trainer = 0;  // the rank of this trainer

  // True if this trainer's updates show in rows that lack them.
  bool shows_own() const { return read_bound > 0 || write_bound > 0; }
};

class CachedTable {
 public:
  CachedTable(const TableSpec& spec, const CacheOptions& options);

  const TableSpec& spec() const { return spec_; }
  size_t dim() const { return dim_; }
  bool keeps_back() const { return !kept_rows_.empty(); }

  // Writes the cached rows to `rows`, and versions like PullSegment::versions.
  void Lookup(absl::Span<const uint64_t> ids, float* rows, uint32_t* versions);
  // Takes a row as the servers sent it. `row` becomes the row that the trainer is to see, which is
  // cached if there is room.
  void Take(uint64_t id, uint32_t version, float* row);
  // InvalidArgument unless ids are distinct. OutOfRange if a gradient is not finite and the table
  // rejects such gradients.
  absl::Status CheckPush(uint64_t step, const PushSegment& segment);
  // Adds to the open step's gradients. Without a write bound, only gradients of cached rows are
  // added.
  // REQUIRES: CheckPush was Ok, or there is no write bound.
  void AddGradients(uint64_t step, absl::Span<const uint64_t> ids, const float* gradients);
  // With a write bound: statistics of gradients that this client dropped or mended. Without a write
  // bound servers get these gradients and count them.
  const ValueGuardStatistics& guarded() const { return guarded_; }
  // The squared norm of the open step's gradients.
  double GradientSquaredNorm() const;
  void DropGradients() { gradients_.Clear(); }
  // After the step's commit: shows the step's gradients in cached rows.
  void ShowGradients(const CommitArgs& args);
  // After the step's commit, with a write bound: shows and keeps back gradients of cached rows.
  // Adds the gradients to be pushed, scaled, to `ids` and `due`. These are gradients of other rows,
  // and gradients kept back for write_bound steps.
  void KeepGradients(const CommitArgs& args, std::vector<uint64_t>* ids, std::vector<float>* due);
  // OutOfRange, naming a row, if servers would refuse one of these sums.
  absl::Status CheckDue(const CommitArgs& args, const std::vector<uint64_t>& ids,
                        const std::vector<float>& due);
  // Forgets all rows except rows with gradients kept back.
  void ForgetRows() { rows_.Clear(); }

 private:
  struct KeptRow {
    uint64_t step;  // step of the first gradient kept back
    uint32_t place;
  };

  // The layout of a row's values: weights, slots (only if own updates show), kept gradients and
  // shown changes (only with a write bound).
  float* weights(uint32_t place) { return rows_.values(place); }
  float* slots(uint32_t place) { return weights(place) + dim_; }
  float* kept(uint32_t place) { return slots(place) + num_slots_; }  // gradients kept back, scaled
  // The sum that these gradients added to the weights.
  float* shown(uint32_t place) { return kept(place) + dim_; }
  // Applies one update, as the servers will.
  void Show(uint32_t place, const float* gradient, const CommitArgs& args);
  void Keep(uint32_t place, const float* gradient, const CommitArgs& args);

  const TableSpec spec_;
  const CacheOptions options_;
  const size_t dim_;
  const std::unique_ptr<SparseOptimizer> optimizer_;
  const size_t num_slots_;
  RowCache rows_;
  StepGradients gradients_;
  ValueGuardStatistics guarded_;
  std::deque<KeptRow> kept_rows_;  // oldest first
};

}  // namespace tandem::ps
