// One replica's part of trace.json. It records the traced steps on the loop's thread, at the client
// and at the master's link. It gathers all roles' spans when the last traced step has completed.
// Thread rule: the loop's thread, whose spans get its name.
// REQUIRES: it outlives everything launched on the stream during the trace.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/memory/stream.h"
#include "kernels/trace/trace.h"
#include "ps/client/table_admin.h"
#include "rpc/master/client.h"
#include "trainer/comm/process_group.h"
#include "trainer/report/step_observer.h"

namespace tandem {
class RoleTrace;  // proto/trace.pb.h
}

namespace tandem::report {

struct RunTraceOptions {
  int64_t first_step = 0, num_steps = 0;  // in the job's numbering; num_steps <= 0: no trace
  Stream* stream = nullptr;
  comm::ProcessGroup* group = nullptr;
  ps::TableAdmin* tables = nullptr;     // null: no tables
  rpc::MasterClient* master = nullptr;  // null: no master
  // At rank 0: gets the spans of all roles, on one clock. Null at all other ranks.
  std::function<absl::Status(std::vector<RoleTrace>)> deliver = nullptr;
  // Told what trace.json lacks, or why there is none. A trace never ends the run. Null: nobody is
  // told.
  std::function<void(const std::string&)> note = nullptr;
};

class RunTrace final : public StepObserver {
 public:
  // REQUIRES: made before the first step's pull.
  explicit RunTrace(const RunTraceOptions& options);
  ~RunTrace() override;
  RunTrace(const RunTrace&) = delete;
  RunTrace& operator=(const RunTrace&) = delete;

  // The call before the second step after the last traced one is collective. By then a pull and a
  // commit prove that all calls of the traced steps are over. Always returns Ok.
  absl::Status BeforeStep(const StepRecord& record, absl::Time deadline) override;
  // For a run that ends earlier. Collective. Always returns Ok.
  absl::Status Finish(absl::Time deadline) override;

 private:
  int64_t last_step() const { return options_.first_step + options_.num_steps - 1; }
  void StopRecording();
  // Gathers and delivers the spans. Collective. An error says what trace.json lacks.
  absl::Status Collect(absl::Time deadline);
  void Note(const absl::Status& lack) const;

  const RunTraceOptions options_;
  const std::shared_ptr<Tracer> tracer_ = std::make_shared<Tracer>();
  bool recorded_ = false;  // has recorded a step
  bool collected_ = false;
};

}  // namespace tandem::report
