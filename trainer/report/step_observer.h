// StepRecord says what a training step did, and a StepObserver is told. Clocks, meters, traces and
// files are observers, so a step itself measures and writes nothing.
// Thread rule: the step's thread.
// Invariant: an observer changes no bit of a step. A run has the same weights without observers.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem::report {

// The parts that a step's time divides into.
enum class StepPart { COMPUTE, COLLECTIVE, PULL, PUSH };

struct StepRecord {
  int64_t step = 0, total_steps = 0, epoch = 0;
  bool logged = false;  // shown to people and written to metrics.jsonl (train.log_every_steps)

  // The step fills in the next block.
  int64_t samples = 0, tokens = 0;  // of the whole batch, over all replicas
  double flops = 0;                 // of this replica's products
  double loss = 0, learning_rate = 0;
  double grad_norm = 0;         // norm of the mean gradient, dense and sparse together
  bool skipped = false;         // left out, because its loss or a gradient was not finite
  bool launched_graph = false;  // its passes were launched as one CUDA graph

  // Observers fill in all below.
  double time = 0;             // seconds since 1970
  double elapsed_seconds = 0;  // since the run or its resumption began
  double samples_per_second = 0, tokens_per_second = 0;
  double compute_ms = 0, collective_ms = 0, pull_ms = 0, push_ms = 0;
  // The most steps of the slowest trainer that a pull of any trainer missed since the last record.
  // BSP: 0.
  int64_t staleness = 0;
  // The products' flops over the device's peak, for this process; 0: the peak is not known.
  double mfu = 0;
};

// An error of an observer ends the run.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  // Called before the step's first work. `record` has the step's numbers, up to `logged`.
  virtual absl::Status BeforeStep(const StepRecord& /*record*/, absl::Time /*deadline*/) {
    return absl::OkStatus();
  }
  // Called when the step has submitted or awaited a share of its work, which belongs to `part`.
  virtual void AfterPart(StepPart /*part*/) {}
  // Called after the step's commit. Adds the observer's figures to the record, or passes the record
  // on.
  virtual absl::Status AfterStep(StepRecord& /*record*/, absl::Time /*deadline*/) {
    return absl::OkStatus();
  }
  // Called once, after the last step's commit is applied. All replicas call it.
  virtual absl::Status Finish(absl::Time /*deadline*/) { return absl::OkStatus(); }
};

// Calls a function after every step. For benchmarks and tests.
class OnStep final : public StepObserver {
 public:
  explicit OnStep(std::function<void(const StepRecord&)> call) : call_(std::move(call)) {}
  absl::Status AfterStep(StepRecord& record, absl::Time /*deadline*/) override {
    return call_(record), absl::OkStatus();
  }

 private:
  const std::function<void(const StepRecord&)> call_;
};

// Tells several observers, in order. The first error is returned at once.
class StepObservers final : public StepObserver {
 public:
  // REQUIRES: `observer` outlives this object, or is null, which adds nothing.
  void Add(StepObserver* observer);

  absl::Status BeforeStep(const StepRecord& record, absl::Time deadline) override;
  void AfterPart(StepPart part) override;
  absl::Status AfterStep(StepRecord& record, absl::Time deadline) override;
  absl::Status Finish(absl::Time deadline) override;

 private:
  std::vector<StepObserver*> observers_;
};

}  // namespace tandem::report
