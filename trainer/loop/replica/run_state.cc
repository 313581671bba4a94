#include "trainer/loop/replica/run_state.h"

#include <cmath>

namespace tandem::loop {

void RunState::Count(int64_t step, int64_t samples, int64_t tokens, double loss, bool skipped) {
  step_ = step;
  samples_ += samples;
  tokens_ += tokens;
  if (!skipped) loss_sum_ += loss;
  ++loss_steps_;
  skipped_steps_ += skipped;
}

double RunState::MeanLoss() const {
  const int64_t steps = loss_steps_ - skipped_steps_;
  if (steps > 0) return loss_sum_ / static_cast<double>(steps);
  return skipped_steps_ > 0 ? std::nan("") : 0;
}

void RunState::BeginMean() {
  loss_sum_ = 0;
  loss_steps_ = 0;
  skipped_steps_ = 0;
}

bool RunState::IsBest(double selection) const {
  return std::isfinite(selection) && (best_step_ == 0 || selection > best_selection_);
}

bool RunState::Evaluated(int64_t epoch, double selection,
                         const std::map<std::string, double>& metrics) {
  const bool best = IsBest(selection);
  if (best) {
    best_selection_ = selection;
    best_step_ = step_;
    best_epoch_ = epoch;
    best_metrics_ = metrics;
    evaluations_since_best_ = 0;
  } else if (epoch > train_.min_epochs()) {
    ++evaluations_since_best_;
  }
  return best;
}

bool RunState::patience_ended() const {
  return train_.patience() > 0 && evaluations_since_best_ >= train_.patience();
}

void RunState::Save(CheckpointManifest* manifest) const {
  manifest->set_step(static_cast<uint64_t>(step_));
  manifest->set_samples_consumed(static_cast<uint64_t>(samples_));
  manifest->set_tokens_consumed(static_cast<uint64_t>(tokens_));
  manifest->set_best_epoch(static_cast<uint64_t>(best_epoch_));
  manifest->set_best_step(static_cast<uint64_t>(best_step_));
  manifest->set_best_selection(best_selection_);
  manifest->mutable_best_metrics()->clear();
  manifest->mutable_best_metrics()->insert(best_metrics_.begin(), best_metrics_.end());
  manifest->set_evaluations_since_best(static_cast<uint64_t>(evaluations_since_best_));
  manifest->set_epoch_loss(loss_sum_);
  manifest->set_epoch_steps(static_cast<uint64_t>(loss_steps_));
  manifest->set_epoch_skipped_steps(static_cast<uint64_t>(skipped_steps_));
}

void RunState::Restore(const CheckpointManifest& manifest) {
  step_ = static_cast<int64_t>(manifest.step());
  samples_ = static_cast<int64_t>(manifest.samples_consumed());
  tokens_ = static_cast<int64_t>(manifest.tokens_consumed());
  best_epoch_ = static_cast<int64_t>(manifest.best_epoch());
  best_step_ = static_cast<int64_t>(manifest.best_step());
  best_selection_ = manifest.best_selection();
  best_metrics_ = {manifest.best_metrics().begin(), manifest.best_metrics().end()};
  evaluations_since_best_ = static_cast<int64_t>(manifest.evaluations_since_best());
  loss_sum_ = manifest.epoch_loss();
  loss_steps_ = static_cast<int64_t>(manifest.epoch_steps());
  skipped_steps_ = static_cast<int64_t>(manifest.epoch_skipped_steps());
}

}  // namespace tandem::loop
