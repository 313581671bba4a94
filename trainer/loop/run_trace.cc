#include "trainer/loop/run_trace.h"

#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/role_trace.h"
#include "trainer/loop/gather_traces.h"

namespace tandem::loop {

RunTrace::RunTrace(const RunTraceOptions& options) : options_(options) {
  if (options_.num_steps <= 0) return;
  NameThisThread("loop");
  if (options_.client != nullptr) {
    options_.client->TraceSteps(tracer_, static_cast<uint64_t>(options_.first_step), static_cast<uint64_t>(last_step()));
  }
}

RunTrace::~RunTrace() { StopRecording(); }

void RunTrace::StopRecording() {
  options_.stream->set_tracer(nullptr);
  if (options_.client != nullptr) options_.client->TraceSteps(nullptr, 0, 0);
  if (options_.master != nullptr) options_.master->TraceCalls(nullptr);
}

absl::Status RunTrace::BeforeStep(int64_t step, absl::Time deadline) {
  if (step < options_.first_step || collected_ || options_.num_steps <= 0) return absl::OkStatus();
  if (step > last_step() + 1) return Collect(deadline);
  if (!recorded_ && options_.master != nullptr) options_.master->TraceCalls(tracer_);
  recorded_ = true;
  options_.stream->set_tracer(step <= last_step() ? tracer_.get() : nullptr);
  return absl::OkStatus();
}

absl::Status RunTrace::Finish(absl::Time deadline) {
  return recorded_ && !collected_ ? Collect(deadline) : absl::OkStatus();
}

absl::Status RunTrace::Collect(absl::Time deadline) {
  collected_ = true;
  const bool collects = options_.deliver != nullptr;
  absl::Status status;
  std::vector<RoleTrace> others;
  if (collects && options_.master != nullptr) {  // before this member's side of the last calls is taken
    auto master = options_.master->TakeTrace();
    status.Update(master.status());
    if (master.ok()) others.push_back(*std::move(master));
  }
  StopRecording();
  const RoleTrace mine = rpc::TakeRoleTrace(absl::StrCat("trainer-", options_.group->rank()), *tracer_);
  ASSIGN_OR_RETURN(std::vector<RoleTrace> traces, GatherTraces(*options_.group, mine, deadline));
  if (!collects) return status;
  if (options_.client != nullptr) {
    auto servers = options_.client->TakeTraces(deadline - absl::Now());
    status.Update(servers.status());
    if (servers.ok()) std::move(servers->begin(), servers->end(), std::back_inserter(others));
  }
  std::move(others.begin(), others.end(), std::back_inserter(traces));
  status.Update(options_.deliver(std::move(traces)));
  return status;
}

}  // namespace tandem::loop
