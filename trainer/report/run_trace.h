// One replica's part in trace.json: records the traced steps on the loop's thread, at the client and at the master's link, and
// brings all roles' spans together when the last of them has completed.
// Thread rule: the loop's thread, which it names. It outlives what was launched on the stream meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/memory/stream.h"
#include "kernels/trace/trace.h"
#include "proto/trace.pb.h"
#include "ps/client/client.h"
#include "rpc/master/client.h"
#include "trainer/comm/process_group.h"

namespace tandem::report {

struct RunTraceOptions {
  int64_t first_step = 0, num_steps = 0;  // in the job's numbering; num_steps <= 0: no trace
  Stream* stream = nullptr;
  comm::ProcessGroup* group = nullptr;
  ps::Client* client = nullptr;          // null: no tables
  rpc::MasterClient* master = nullptr;  // null: no master
  // Gets the spans of all roles, on one clock, at rank 0; null at all other ranks.
  std::function<absl::Status(std::vector<RoleTrace>)> deliver = nullptr;
};

class RunTrace {
 public:
  // Before the first step's pull.
  explicit RunTrace(const RunTraceOptions& options);
  ~RunTrace();
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // Before every step; collective in the second after the last traced one, because the pull and the commit between them prove
  // that all calls of the traced steps are over. An error, which says what trace.json lacks or why there is
  // none, concerns the trace alone, unless the group has failed.
  absl::Status BeforeStep(int64_t step, absl::Time deadline);
  // For a run that ends before that. Collective. REQUIRES: the last commit is applied.
  absl::Status Finish(absl::Time deadline);

 private:
  int64_t last_step() const { return options_.first_step + options_.num_steps - 1; }
  void StopRecording();
  absl::Status Collect(absl::Time deadline);

  const RunTraceOptions options_;
  const std::shared_ptr<Tracer> tracer_ = std::make_shared<Tracer>();
  bool recorded_ = false;   // a step so far
  bool collected_ = false;
};

}  // namespace tandem::report
