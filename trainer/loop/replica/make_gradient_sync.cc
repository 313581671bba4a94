#include "trainer/loop/replica/make_gradient_sync.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "proto/job.pb.h"
#include "trainer/job/parameter_placement.h"
#include "trainer/parallel/combined_sync.h"
#include "trainer/parallel/data_parallel/ddp.h"
#include "trainer/parallel/served/served_parameters.h"
#include "trainer/parallel/zero/zero.h"

namespace tandem::loop {

int ZeroStageOf(const Job& job) {
  return job.parallel().dp() > 1 ? job.parallel().zero() : std::min(1, job.parallel().zero());
}

std::vector<optim::ElementRange> UpdatedHere(const Job& job, const ParameterSet& parameters,
                                             const parallel::Placements& placements,
                                             const parallel::Mesh& mesh) {
  const std::vector<Parameter*> replicated =
      PlacedAs(parameters, placements, parallel::Placement::REPLICATED);
  const int replica = mesh.dp().rank(), num_replicas = mesh.dp().size();
  const int stage = ZeroStageOf(job);
  std::vector<optim::ElementRange> ranges =
      stage == 0 ? optim::WholeArrays(replicated)
                 : RangesOfPart(parallel::ZeroLayout(replicated, num_replicas, stage), replicated,
                                replica, num_replicas);
  for (optim::ElementRange& range : ranges) {
    const GradientRecord& record = range.parameter->record;
    range.counted = mesh.tp().rank() % std::max(1, record.holders) == 0 &&
                    !(record.tied_over_pp && mesh.pp().rank() > 0);
  }
  return ranges;
}

absl::StatusOr<std::unique_ptr<parallel::GradientSync>> MakeGradientSync(
    const Job& job, const GradientSyncArgs& args) {
  const std::vector<Parameter*> replicated =
      PlacedAs(*args.parameters, args.placements, parallel::Placement::REPLICATED);
  std::vector<std::unique_ptr<parallel::GradientSync>> parts;
  // First, so that the last pushes leave before the wait for all-reduces.
  if (job::ServesParameters(job)) {
    ASSIGN_OR_RETURN(
        parts.emplace_back(),
        parallel::ServedParameters::Create(
            args.rows, args.tables, args.parameters,
            job::ServedPartsOf(job, *args.parameters, args.placements), args.pushes, args.stream));
  }
  const int stage = ZeroStageOf(job);
  if (stage == 0) {
    ASSIGN_OR_RETURN(parts.emplace_back(),
                     parallel::Ddp::Create(args.parameters, replicated, args.group, args.holders,
                                           args.stream, {}));
  } else {
    ASSIGN_OR_RETURN(
        parts.emplace_back(),
        parallel::Zero::Create(args.parameters,
                               parallel::ZeroLayout(replicated, args.group->size(), stage),
                               args.group, args.holders, args.stream,
                               {.stage = stage,
                                .sum_every_pass = args.sum_every_pass,
                                .timeout = absl::Seconds(job.runtime().timeout_seconds())}));
  }
  return std::make_unique<parallel::CombinedSync>(std::move(parts));
}

}  // namespace tandem::loop
