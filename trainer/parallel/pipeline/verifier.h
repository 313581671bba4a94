// Replays a pipeline schedule before anything runs: says that it ends, when, and with how many
// activations, or why it does not.
// The replay has the rules of a run. A rank works its list in order, and receives what an
// operation needs one operation ahead. A send leaves the rank free and ends with its receive; the
// messages of an edge arrive in the order of their sends.
// Thread rule: pure functions; any thread.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "trainer/parallel/pipeline/schedule.h"

namespace tandem::parallel {

// How long a microbatch works on all chunks of a rank. Messages take no time.
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

struct TimedOp {
  StageOp op;
  double begin = 0, end = 0;
};

struct ScheduleReport {
  std::vector<std::vector<TimedOp>> ranks;
  double makespan = 0;
  std::vector<double> idle;  // by rank
  // By rank: the most microbatches whose activations are alive at once, each from the begin of its
  // forward to the end of its weight half. A chunk's count 1 / num_chunks.
  std::vector<double> peak_live;

  // The idle part of the makespan, on the rank that is idle longest.
  double bubble() const;
};

// InvalidArgument names what is missing, twice there or out of order; FailedPrecondition the ranks
// and operations that wait for each other in a circle.
absl::StatusOr<ScheduleReport> VerifySchedule(const PipelineSchedule& schedule,
                                              const StageCosts& costs = {});

}  // namespace tandem::parallel
