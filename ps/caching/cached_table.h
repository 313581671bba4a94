// The rows that a trainer keeps of one table (RowCache), with their versions, this trainer's updates of them and, with a write bound,
// gradients that are kept back. What a row promises: client_cached.h. A row with gradients kept back stays until they are pushed.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "ps/client/client.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/caching/row_cache.h"
#include "ps/caching/step_gradients.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {

struct CacheOptions {
  size_t rows_per_table = 0;
  uint32_t read_bound = 0;
  uint32_t write_bound = 0;
  uint32_t trainer = 0;  // this one

  // Whether this trainer's updates show in rows that lack them.
  bool shows_own() const { return read_bound > 0 || write_bound > 0; }
};

class CachedTable {
 public:
  CachedTable(const TableSpec& spec, const CacheOptions& options);

  const TableSpec& spec() const { return spec_; }
  size_t dim() const { return dim_; }
  bool keeps_back() const { return !kept_rows_.empty(); }

  // Writes the rows that are here; versions as in PullSegment.
  void Lookup(absl::Span<const uint64_t> ids, float* rows, uint32_t* versions);
  // A row as the servers sent it; `row` becomes what the trainer is to see, which is kept, if there is room.
  void Take(uint64_t id, uint32_t version, float* row);
  // InvalidArgument unless ids are distinct, and the gradients finite or the table mends them.
  absl::Status CheckPush(uint64_t step, const PushSegment& segment);
  // Adds to the open step's gradients; without a write bound of rows only that are here. REQUIRES: CheckPush, or no write bound.
  void AddGradients(uint64_t step, absl::Span<const uint64_t> ids, const float* gradients);
  // Of gradients that go no further, with a write bound: without one servers get them too, and count.
  const ValueGuardStatistics& guarded() const { return guarded_; }
  // Of the open step's.
  double GradientSquaredNorm() const;
  void DropGradients() { gradients_.Clear(); }
  // The step is committed: its gradients show in rows that are here.
  void ShowGradients(const CommitArgs& args);
  // Likewise; gradients of rows that are here are kept back. What is to be pushed, scaled, is added to `ids` and `due`: gradients of other
  // rows, and what has been kept for long enough.
  void KeepGradients(const CommitArgs& args, std::vector<uint64_t>* ids, std::vector<float>* due);
  // OutOfRange, naming a row, if servers would refuse one of these sums.
  absl::Status CheckDue(const CommitArgs& args, const std::vector<uint64_t>& ids, const std::vector<float>& due);
  // All rows but those with gradients kept back.
  void ForgetRows() { rows_.Clear(); }

 private:
  struct KeptRow {
    uint64_t step;  // of the first gradient kept back
    uint32_t place;
  };

  // What lies where in a row's values: slots only if own updates show, the other two only with a write bound.
  float* weights(uint32_t place) { return rows_.values(place); }
  float* slots(uint32_t place) { return weights(place) + dim_; }
  float* kept(uint32_t place) { return slots(place) + num_slots_; }  // gradients, scaled
  float* shown(uint32_t place) { return kept(place) + dim_; }        // what they added to the weights
  // One update, as the servers will make it.
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
