// A run's progress beyond its weights: the position in the data, the best evaluation and the
// patience left. A checkpoint's manifest holds RunState, so a resumed run decides like an
// uninterrupted run.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "proto/checkpoint.pb.h"
#include "trainer/tasks/task.h"

namespace tandem::loop {

class RunState {
 public:
  explicit RunState(const Train& train) : train_(train) {}

  // Counts a step. If `skipped`, the step was left out and its loss counts nowhere.
  void Count(int64_t step, int64_t samples, int64_t tokens, double loss, bool skipped = false);
  // Returns the mean loss of the steps since BeginMean, without skipped steps. NaN if all were
  // skipped.
  double MeanLoss() const;
  // True after a due evaluation's step if the evaluation is still to be made. Holds after Restore
  // too.
  bool has_steps_since_mean() const { return loss_steps_ > 0; }
  void BeginMean();

  // True if `selection` beats the best so far. False for a NaN or an infinity.
  bool IsBest(double selection) const;
  // Records an evaluation ("valid/..."). Returns true if it is the best so far.
  // REQUIRES: `selection` is NaN if any metric is not finite.
  bool Evaluated(int64_t epoch, double selection, const std::map<std::string, double>& metrics);
  // Adds the test metrics of the best evaluation.
  void AddBestMetrics(const std::map<std::string, double>& metrics) {
    best_metrics_.insert(metrics.begin(), metrics.end());
  }
  bool patience_ended() const;

  int64_t step() const { return step_; }
  int64_t best_step() const { return best_step_; }
  int64_t best_epoch() const { return best_epoch_; }
  const std::map<std::string, double>& best_metrics() const { return best_metrics_; }

  void Save(CheckpointManifest* manifest) const;
  void Restore(const CheckpointManifest& manifest);

 private:
  const Train train_;
  int64_t step_ = 0, samples_ = 0, tokens_ = 0, loss_steps_ = 0, skipped_steps_ = 0;
  double loss_sum_ = 0, best_selection_ = 0;
  int64_t best_step_ = 0, best_epoch_ = 0, evaluations_since_best_ = 0;
  std::map<std::string, double> best_metrics_;
};

}  // namespace tandem::loop
