// One replica's training run, from initial weights to the summary: the same code for a thread of `--local` and for a
// trainer process; only the client and the group differ. Dense layers are synchronous and exact; so are rows in BSP: a pull for step
// k + 1 sees every push of step k. With PERMIT rows are pulled as many steps before they are used as may be under way.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kernels/base/device.h"
#include "proto/job.pb.h"
#include "trainer/comm/process_group.h"
#include "proto/trace.pb.h"
#include "ps/client/clients.h"
#include "rpc/master/client.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/tasks/job_data.h"
#include "trainer/report/run_output.h"

namespace tandem::loop {

struct ReplicaEnvironment {
  const checkpoint::Checkpoint* resume = nullptr;  // go on from it, of this job and data; null: from the start
  comm::ProcessGroup* group = nullptr;  // its rank and size are the replica's
  ps::Clients clients = {};
  report::RunOutput* output = nullptr;          // rank 0 only; begins when nothing can refuse the run any more
  Device device = {};                   // where it computes: DeviceOf the job
  comm::ProcessGroup* device_group = nullptr;  // the same ranks, for arrays on `device`; null on a CPU, and for the only replica
  int num_servers = 0;                  // for the summary; 0: local tables
  // Asked in every step and before every block of an evaluation. If any replica's answer is true, all end after the same step: they
  // write a checkpoint and return a summary with status "stopped". An evaluation that was due then is the resumed run's.
  std::function<bool()> stop_requested = nullptr;
  rpc::MasterClient* master = nullptr;  // for the trace; null: no master
  std::optional<DType> compute = std::nullopt;  // for tests and benchmarks: instead of choosing, alike for all
  // For measuring, at rank 0: after every step, and with the traced steps' spans instead of writing trace.json.
  std::function<void(const report::StepRecord&)> on_step = nullptr;
  std::function<void(const std::vector<RoleTrace>&)> on_trace = nullptr;
};

// Runs the resolved job. After an error the group and the client are aborted, so that no peer waits for this replica.
absl::StatusOr<report::RunSummary> RunReplica(const Job& job, const tasks::JobData& data, const ReplicaEnvironment& environment);

}  // namespace tandem::loop
