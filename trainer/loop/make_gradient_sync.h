// The GradientSync that a job asks for: data parallelism for replicated parameters, servers for the others.
// Thread rule: a free function.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"
#include "trainer/comm/process_group.h"
#include "trainer/parallel/gradient_sync.h"
#include "trainer/parallel/placement.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::loop {

struct GradientSyncArgs {
  ParameterSet* parameters = nullptr;
  parallel::Placements placements;
  comm::ProcessGroup* group = nullptr;  // its arrays lie where the parameters do, if it has several ranks
  ps::RowClient* rows = nullptr;
  ps::TableAdmin* tables = nullptr;
  sparse::StepPushes* pushes = nullptr;  // of the step
  Stream* stream = nullptr;
};

// Collective over the group. All that the arguments point to outlives the result.
absl::StatusOr<std::unique_ptr<parallel::GradientSync>> MakeGradientSync(const Job& job, const GradientSyncArgs& args);

}  // namespace tandem::loop
