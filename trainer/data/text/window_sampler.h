// Batches for language models: windows of max_length symbols, each with the following symbols as
// targets. Training windows start anywhere, uniformly and with replacement. Validation windows lie
// side by side; a rest at the end that is too short for a window is dropped.
// Invariant: a window and its row_index depend on (seed, step, place in the global batch) alone.
// Replicas and parts only cut the batch.
// Thread rule: every method from any number of threads at once.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/data/text/text.h"

namespace tandem::data {

// B windows packed one after another, T = B * max_length. "Global" numbers refer to the whole batch
// over all replicas and parts.
struct WindowBatch {
  int64_t first_sample = 0;         // global number of local window 0
  std::vector<int64_t> offsets{0};  // [B + 1]
  std::vector<int64_t> inputs;      // [T] symbols
  std::vector<int64_t> targets;     // [T] the symbol after each input
  std::vector<int64_t> positions;   // [T] 0 .. max_length - 1 in each window
  std::vector<int64_t> row_index;   // [T] global sample number * max_length + position
  int64_t global_samples = 0;
  int64_t global_targets = 0;

  int64_t num_samples() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t num_tokens() const { return static_cast<int64_t>(inputs.size()); }
};

class WindowSampler {
 public:
  struct Options {
    uint64_t seed = 0;
    int batch_size = 256;  // global: windows of one optimizer step over all replicas
    int max_length = 256;
  };

  // REQUIRES: `text` outlives the sampler, does not change and was read with this max_length;
  // options are positive.
  WindowSampler(const Text* text, Options options);

  // The steps of an epoch: as many as draw the number of symbols in the training part, rounded up.
  int64_t steps_per_epoch() const;

  // The share of the windows of optimizer step `step` that batch_share.h cuts. An empty share is an
  // empty batch.
  WindowBatch TrainBatch(int64_t step, int replica, int num_replicas, int part = 0,
                         int num_parts = 1) const;

  int64_t num_eval_windows() const;
  // Validation windows begin .. end - 1.
  WindowBatch EvalBatch(int64_t begin, int64_t end) const;

 private:
  void AppendWindow(int64_t global_sample, absl::Span<const int32_t> symbols,
                    WindowBatch& batch) const;

  const Text* text_;
  Options options_;
};

}  // namespace tandem::data
