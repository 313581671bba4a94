// The observers of a run's steps, in order: the trace, the meters, the output that shows what the
// meters measured, and the environment's own observer.
// Thread rule: the step's thread.
// REQUIRES: it outlives everything launched on the replica's stream during the trace.
#pragma once

#include <optional>

#include "trainer/loop/replica/replica.h"
#include "trainer/report/run_trace.h"
#include "trainer/report/server_watch.h"
#include "trainer/report/step_clock.h"
#include "trainer/report/step_observer.h"
#include "trainer/report/throughput.h"

namespace tandem::loop {

struct RunObservers {
  // REQUIRES: the replica has its precision and its first state, and outlives the observers.
  explicit RunObservers(Replica* replica);

  report::RunTrace trace;
  std::optional<report::ServerWatch> servers;  // rank 0 of a run whose rows may be stale
  report::StepClock clock;
  report::Throughput throughput;
  report::StepObservers all;
};

}  // namespace tandem::loop
