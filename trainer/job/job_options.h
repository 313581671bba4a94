// A resolved job (all defaults filled in) as the options of models, optimizers and tables.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/device.h"
#include "proto/embedding.pb.h"
#include "proto/job.pb.h"
#include "trainer/comm/device/device_group.h"
#include "trainer/models/gpt.h"
#include "trainer/models/sequence_rec.h"
#include "trainer/sparse/step_optimizer.h"

namespace tandem::job {

// Where trainer `place` of this machine's `num_trainers` computes: on a GPU of its own if the job says nothing and there are enough for
// all; trainers share GPUs if the job wants CUDA and there are too few. InvalidArgument says why there is none.
struct ComputePlace {
  Device device;
  bool shared = false;  // another trainer computes on the same GPU
};
absl::StatusOr<ComputePlace> DeviceOf(const Job& job, int place, int num_trainers);
// The device's process group, over `host`, of several replicas. Collective.
absl::StatusOr<comm::DeviceGroup> MakeDeviceGroup(const Job& job, const ComputePlace& place, comm::ProcessGroup* host, rpc::Store* store);
models::SequenceRecOptions SequenceRecOptionsOf(const Job& job);
models::GptOptions GptOptionsOf(const Job& job, int64_t vocabulary_size);
optim::DenseOptions DenseOptionsOf(const Job& job);
// `total_steps` is the job's last step, where schedules end unless the job says otherwise.
sparse::StepOptimizer::Options DistOptionsOf(const Job& job, int64_t total_steps);
// The rows that parameter servers hold; tables are numbered 1, 2, ... in the order of the job.
std::vector<TableSpec> TableSpecsOf(const Job& job);
// The tables of served parameters, numbered behind them, those without weight decay first; none if nothing is served.
std::vector<TableSpec> DenseTableSpecsOf(const Job& job);
// How far apart trainers may be, as parameter servers know it.
ConsistencySpec ConsistencyOf(const Job& job);
// The steps of the whole job.
int64_t TotalSteps(const Job& job, int64_t steps_per_epoch);

}  // namespace tandem::job
