// Makes the GradientSync that a job asks for. Replicated parameters use data parallelism, with
// parallel.zero ZeRO; served parameters use servers.
// Thread rule: a free function.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"
#include "trainer/comm/process_group.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/parallel/holder_groups.h"
#include "trainer/parallel/mesh.h"
#include "trainer/parallel/placement.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::loop {

// parallel.zero, but at most 1 with one replica, which has nobody to share with.
int ZeroStageOf(const Job& job);

// The elements of replicated parameters that this rank updates. The first of an element's holders
// counts it, and of the stages that hold it the first one.
std::vector<optim::ElementRange> UpdatedHere(const Job& job, const ParameterSet& parameters,
                                             const parallel::Placements& placements,
                                             const parallel::Mesh& mesh);

struct GradientSyncArgs {
  ParameterSet* parameters = nullptr;
  parallel::Placements placements;
  // The replicas. If there are several, the group's arrays lie where the parameters do.
  comm::ProcessGroup* group = nullptr;
  const parallel::HolderGroups* holders = nullptr;  // arrays as above
  // parallel::ZeroOptions
  bool sum_every_pass = true;
  ps::RowClient* rows = nullptr;
  ps::TableAdmin* tables = nullptr;
  sparse::StepPushes* pushes = nullptr;  // of the current step
  Stream* stream = nullptr;
};

// Makes the GradientSync. Collective over the group.
// REQUIRES: all objects in `args` outlive the result.
absl::StatusOr<std::unique_ptr<parallel::GradientSync>> MakeGradientSync(
    const Job& job, const GradientSyncArgs& args);

}  // namespace tandem::loop
