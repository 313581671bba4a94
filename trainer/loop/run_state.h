// Where a run stands beyond its weights: how far the data was read, which evaluation was best and how long patience lasts. A
// checkpoint's manifest holds it, so that a resumed run decides everything as the unbroken one would.
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

  // A step was trained, or, if `skipped`, left out: its loss counts nowhere.
  void Count(int64_t step, int64_t samples, int64_t tokens, double loss, bool skipped = false);
  // The mean loss of the steps since BeginMean, but for those that were skipped; NaN if all were.
  double MeanLoss() const;
  // After a step whose evaluation is due: whether that evaluation is still to be made, also once restored.
  bool has_steps_since_mean() const { return loss_steps_ > 0; }
  void BeginMean();

  // False for a NaN or an infinity.
  bool IsBest(double selection) const;
  // Takes note of an evaluation ("valid/..."), whose `selection` is NaN if any of its figures is not finite; true if it is the best so far.
  bool Evaluated(int64_t epoch, double selection, const std::map<std::string, double>& metrics);
  // The best evaluation's test figures.
  void AddBestMetrics(const std::map<std::string, double>& metrics) { best_metrics_.insert(metrics.begin(), metrics.end()); }
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
