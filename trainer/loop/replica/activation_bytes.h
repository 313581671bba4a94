// The memory of a pipeline's activations, measured before the first step: the forward passes of one
// microbatch run once, and what their graph keeps is counted.
// Thread rule: the step's thread.
#pragma once

#include "absl/status/status.h"
#include "trainer/loop/replica/replica.h"

namespace tandem::loop {

// InvalidArgument, with the peak of each rank, if some rank needs more than parallel.memory_bytes
// for its state and for the activations of the microbatches that its schedule has alive at once. Ok
// without a pipeline or a limit. Collective.
// REQUIRES: the replica has its weights and its precision, and no step has run.
absl::Status CheckPipelineMemory(Replica& replica);

}  // namespace tandem::loop
