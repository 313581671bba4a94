// The connections of a pipeline's rank to its neighbours: a group of two for each edge and
// direction, so that activations never wait behind gradients.
// Thread rule: that of ProcessGroup.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"

namespace tandem::parallel {

// Null where there is no such neighbour. Rank 0 of a group sends, rank 1 receives.
struct PipelineEdges {
  std::unique_ptr<comm::ProcessGroup> activations_in, activations_out;
  std::unique_ptr<comm::ProcessGroup> gradients_in, gradients_out;

  // Fails everything under way, here and at the neighbours.
  void Abort(const absl::Status& reason) const;
};

// `stages`: the pipeline's ranks in order. `is_ring`: the last rank also sends activations to the
// first one, because ranks have several chunks. Collective over `stages`.
absl::StatusOr<PipelineEdges> MakeEdges(comm::ProcessGroup& stages, bool is_ring,
                                        absl::Time deadline);

}  // namespace tandem::parallel
