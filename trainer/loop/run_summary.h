// The end of a run: its figures, the hash of its weights, and the last notes.
// Thread rule: the step's thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/loop/replica/replica.h"
#include "trainer/loop/run_observers.h"
#include "trainer/loop/stage_watch.h"
#include "trainer/report/run_output.h"

namespace tandem::loop {

// Ends the run with status `status`. Internal if the replicas' weights differ. Collective.
absl::StatusOr<report::RunSummary> Summarize(Replica& replica, RunObservers& observers,
                                             const StageTimes& times, const std::string& status);

}  // namespace tandem::loop
