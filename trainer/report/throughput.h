// Rates of a run: samples and tokens a second, and the model FLOPs utilisation (MFU).
// Thread rule: the step's thread.
#pragma once

#include <cstdint>

#include "kernels/base/clock.h"
#include "trainer/report/step_observer.h"

namespace tandem::report {

class Throughput final : public StepObserver {
 public:
  // `peak_flops` is what the device can do in a second; 0: not known.
  explicit Throughput(double peak_flops) : peak_flops_(peak_flops) {}

  absl::Status BeforeStep(const StepRecord& record, absl::Time deadline) override;
  absl::Status AfterStep(StepRecord& record, absl::Time deadline) override;

  // The mean rates of all steps of this process. Evaluations and checkpoints do not count.
  double samples_per_second() const { return PerSecond(samples_); }
  double tokens_per_second() const { return PerSecond(tokens_); }

 private:
  double PerSecond(int64_t count) const;

  const double peak_flops_;
  Stopwatch watch_;  // since the step began
  double seconds_ = 0;
  int64_t samples_ = 0, tokens_ = 0;
};

}  // namespace tandem::report
