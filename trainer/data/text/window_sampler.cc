#include "trainer/data/text/window_sampler.h"

#include "kernels/base/check.h"
#include "kernels/base/random.h"
#include "trainer/data/batch_share.h"

namespace tandem::data {

WindowSampler::WindowSampler(const Text* text, Options options) : text_(text), options_(options) {
  TANDEM_CHECK_GT(options_.batch_size, 0);
  TANDEM_CHECK_GT(options_.max_length, 0);
  TANDEM_CHECK_GT(static_cast<int64_t>(text_->train.size()), options_.max_length);
  TANDEM_CHECK_GT(static_cast<int64_t>(text_->valid.size()), options_.max_length);
}

int64_t WindowSampler::steps_per_epoch() const {
  const int64_t step = int64_t{options_.batch_size} * options_.max_length;
  return (static_cast<int64_t>(text_->train.size()) + step - 1) / step;
}

WindowBatch WindowSampler::TrainBatch(int64_t step, int replica, int num_replicas, int part,
                                      int num_parts) const {
  const BatchShare share = ShareOf(options_.batch_size, replica, num_replicas, part, num_parts);
  const RandomKey key{options_.seed, StableHash("windows")};
  // The last window's last target is the last symbol.
  const uint64_t num_starts = text_->train.size() - options_.max_length;
  WindowBatch batch;
  batch.first_sample = share.begin;
  batch.global_samples = options_.batch_size;
  batch.global_targets = batch.global_samples * options_.max_length;
  for (int64_t sample = share.begin; sample < share.end; ++sample) {
    const uint64_t start =
        RandomBelow(key, static_cast<uint64_t>(step), static_cast<uint64_t>(sample), num_starts);
    AppendWindow(sample, absl::MakeConstSpan(text_->train).subspan(start), batch);
  }
  return batch;
}

int64_t WindowSampler::num_eval_windows() const {
  return (static_cast<int64_t>(text_->valid.size()) - 1) / options_.max_length;
}

WindowBatch WindowSampler::EvalBatch(int64_t begin, int64_t end) const {
  TANDEM_CHECK(0 <= begin && begin <= end && end <= num_eval_windows()) << begin << ".." << end;
  WindowBatch batch;
  batch.first_sample = begin;
  batch.global_samples = end - begin;
  batch.global_targets = batch.global_samples * options_.max_length;
  for (int64_t window = begin; window < end; ++window) {
    AppendWindow(window, absl::MakeConstSpan(text_->valid).subspan(window * options_.max_length),
                 batch);
  }
  return batch;
}

void WindowSampler::AppendWindow(int64_t global_sample, absl::Span<const int32_t> symbols,
                                 WindowBatch& batch) const {
  for (int64_t position = 0; position < options_.max_length; ++position) {
    batch.inputs.push_back(symbols[position]);
    batch.targets.push_back(symbols[position + 1]);
    batch.positions.push_back(position);
    batch.row_index.push_back(global_sample * options_.max_length + position);
  }
  batch.offsets.push_back(batch.num_tokens());
}

}  // namespace tandem::data
