#include "trainer/report/run_trace.h"

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/trace.pb.h"
#include "rpc/role_trace.h"
#include "trainer/report/gather_traces.h"

namespace tandem::report {

namespace {

absl::Status WithoutFile(const absl::Status& why) {
  return absl::Status(why.code(), absl::StrCat("no trace.json: ", std::string(why.message())));
}

}  // namespace

RunTrace::RunTrace(const RunTraceOptions& options) : options_(options) {
  if (options_.num_steps <= 0) return;
  NameThisThread("loop");
  if (options_.tables != nullptr) {
    options_.tables->TraceSteps(tracer_, static_cast<uint64_t>(options_.first_step),
                                static_cast<uint64_t>(last_step()));
  }
}

RunTrace::~RunTrace() { StopRecording(); }

void RunTrace::StopRecording() {
  options_.stream->set_tracer(nullptr);
  if (options_.tables != nullptr) options_.tables->TraceSteps(nullptr, 0, 0);
  if (options_.master != nullptr) options_.master->TraceCalls(nullptr);
}

absl::Status RunTrace::BeforeStep(const StepRecord& record, absl::Time deadline) {
  const int64_t step = record.step;
  if (step < options_.first_step || collected_ || options_.num_steps <= 0) return absl::OkStatus();
  if (step > last_step() + 1) {
    Note(Collect(deadline));
    return absl::OkStatus();
  }
  if (!recorded_ && options_.master != nullptr) options_.master->TraceCalls(tracer_);
  recorded_ = true;
  options_.stream->set_tracer(step <= last_step() ? tracer_.get() : nullptr);
  return absl::OkStatus();
}

absl::Status RunTrace::Finish(absl::Time deadline) {
  if (recorded_ && !collected_) Note(Collect(deadline));
  return absl::OkStatus();
}

void RunTrace::Note(const absl::Status& lack) const {
  if (!lack.ok() && options_.note) options_.note(std::string(lack.message()));
}

absl::Status RunTrace::Collect(absl::Time deadline) {
  collected_ = true;
  const bool collects = options_.deliver != nullptr;
  std::vector<RoleTrace> others;
  std::vector<std::string> lacks;
  const auto lack = [&lacks](const char* whose, const absl::Status& why) {
    lacks.push_back(absl::StrCat(whose, " spans (", std::string(why.message()), ")"));
  };
  // Before this member's side of the last calls is taken.
  if (collects && options_.master != nullptr) {
    // Peers wait meanwhile, until their own deadline.
    auto master = options_.master->TakeTrace(absl::Now() + (deadline - absl::Now()) / 4);
    if (master.ok())
      others.push_back(*std::move(master));
    else
      lack("the master's", master.status());
  }
  StopRecording();
  const RoleTrace mine =
      rpc::TakeRoleTrace(absl::StrCat("trainer-", options_.group->rank()), *tracer_);
  auto traces = GatherTraces(*options_.group, mine, deadline);
  if (!traces.ok()) return WithoutFile(traces.status());
  if (!collects) return absl::OkStatus();
  if (options_.tables != nullptr) {
    auto servers = options_.tables->TakeTraces(deadline - absl::Now());
    if (servers.ok())
      std::move(servers->begin(), servers->end(), std::back_inserter(others));
    else
      lack("the servers'", servers.status());
  }
  std::move(others.begin(), others.end(), std::back_inserter(*traces));
  if (absl::Status delivered = options_.deliver(*std::move(traces)); !delivered.ok())
    return WithoutFile(delivered);
  if (lacks.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("trace.json lacks ", absl::StrJoin(lacks, " and ")));
}

}  // namespace tandem::report
