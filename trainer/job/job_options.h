// Translates a resolved job (all defaults filled in) into the options of optimizers and tables.
// Thread rule: free functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/device.h"
#include "trainer/comm/device/device_group.h"
#include "trainer/sparse/step_optimizer.h"

namespace tandem {
class ConsistencySpec;  // proto/embedding.pb.h
class Job;              // proto/job.pb.h
class TableSpec;        // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::job {

// The device of trainer `place` among this machine's `num_trainers` trainers. If the job says
// nothing and every trainer can have a GPU of its own, the device is a GPU. If the job asks for
// CUDA and GPUs are too few, trainers share GPUs. InvalidArgument says why there is no device.
struct ComputePlace {
  Device device;
  bool shared = false;  // another trainer computes on the same GPU
};
absl::StatusOr<ComputePlace> DeviceOf(const Job& job, int place, int num_trainers);
// Makes the process group of the device, over `host`, for several replicas. Collective.
absl::StatusOr<comm::DeviceGroup> MakeDeviceGroup(const Job& job, const ComputePlace& place,
                                                  comm::ProcessGroup* host, rpc::Store* store);
optim::DenseOptions DenseOptionsOf(const Job& job);
// `total_steps` is the job's last step. Schedules end there unless the job says otherwise.
sparse::StepOptimizer::Options DistOptionsOf(const Job& job, int64_t total_steps);
// The tables on parameter servers, numbered 1, 2, ... in the order of the job.
std::vector<TableSpec> TableSpecsOf(const Job& job);
// The tables of served parameters, numbered after the job's tables, tables without weight decay
// first. Empty if nothing is served.
std::vector<TableSpec> DenseTableSpecsOf(const Job& job);
// How far apart trainers may be, as parameter servers express it.
ConsistencySpec ConsistencyOf(const Job& job);
// The number of steps of the whole job.
int64_t TotalSteps(const Job& job, int64_t steps_per_epoch);

}  // namespace tandem::job
