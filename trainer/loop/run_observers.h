// The observers of a run's steps, in order: trace, meters, output, the environment's own observer.
// The output shows what the meters measured, so the output comes after them.
// Thread rule: the step's thread.
// REQUIRES: the object outlives everything launched on the replica's stream during the trace.
#pragma once

#include <optional>

#include "trainer/loop/replica/replica.h"
#include "trainer/report/collective_meter.h"
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
  report::CollectiveMeter collectives;
  report::StepObservers all;
};

}  // namespace tandem::loop
