// The surroundings of one replica's run. A thread of `--local` and a trainer process run the same
// code; only the client and the group differ.
// Thread rule: a value; the pointers outlive the run.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/dtype.h"
#include "ps/client/clients.h"
#include "rpc/master/client.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/comm/process_group.h"
#include "trainer/report/run_output.h"

namespace tandem {
class RoleTrace;  // proto/trace.pb.h
}

namespace tandem::loop {

struct ReplicaEnvironment {
  // Checkpoint of the same job and data to resume from; null: start anew.
  const checkpoint::Checkpoint* resume = nullptr;
  comm::ProcessGroup* group = nullptr;  // all trainers of the job
  ps::Clients clients = {};
  // Rank 0 only; begins once nothing can refuse the run any more.
  report::RunOutput* output = nullptr;
  Device device = {};  // where the replica computes: DeviceOf the job
  // Group of the same ranks, for arrays on `device`; null on a CPU, and for the only trainer.
  comm::ProcessGroup* device_group = nullptr;
  int num_servers = 0;              // for the summary; 0: local tables
  report::RunProgram program = {};  // for the summary
  // Called in every step and before every block of an evaluation. If any replica returns true, all
  // replicas end after the same step. They write a checkpoint and return a summary with status
  // "stopped". The resumed run makes an evaluation that was due then.
  std::function<bool()> stop_requested = nullptr;
  // Told once, when this replica's state is made or loaded and its first step is due.
  std::function<absl::Status()> on_ready = nullptr;
  rpc::MasterClient* master = nullptr;  // for the trace; null: no master
  // For tests: the type of dense parameters, F32 or F64; same for all replicas.
  DType parameters = DType::F32;
  // For tests and benchmarks: overrides the choice; same for all replicas.
  std::optional<DType> compute = std::nullopt;
  // Told last of every step; null: nobody. For tests and benchmarks.
  report::StepObserver* observer = nullptr;
  // For measuring, at rank 0: gets the traced steps' spans, and trace.json is not written.
  std::function<void(const std::vector<RoleTrace>&)> on_trace = nullptr;
};

}  // namespace tandem::loop
