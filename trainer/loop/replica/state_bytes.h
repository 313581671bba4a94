// The memory of a rank's part of the model: weights, gradients and optimizer slots between two
// steps, added up from the buffers that exist.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "trainer/comm/process_group.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/parallel/gradient_sync.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::loop {

struct StateBytes {
  uint64_t weights = 0, gradients = 0, slots = 0;
  uint64_t total() const { return weights + gradients + slots; }
};

StateBytes StateBytesOf(const ParameterSet& parameters, const parallel::GradientSync& sync,
                        const optim::DenseOptimizer& dense);

// Returns InvalidArgument, with what is needed, if the state takes more than
// parallel.memory_bytes. 0: no limit. Asked before the gradients have memory. Collective over
// `world` if the model has stages, whose ranks need different amounts.
absl::Status CheckMemory(const Job& job, const ParameterSet& parameters,
                         const optim::DenseOptimizer& dense, comm::ProcessGroup& world,
                         absl::Time deadline);

// Needs of a rank of a pipeline.
struct StageNeeds {
  uint64_t state = 0;        // StateBytes::total
  uint64_t activations = 0;  // of the microbatches that are alive at once
  uint64_t num_live = 0;     // how many these are; 0: not known yet
};
// Returns InvalidArgument, with the needs of all ranks, if one needs more than
// parallel.memory_bytes. Collective.
absl::Status CheckStageNeeds(const Job& job, const StageNeeds& mine, comm::ProcessGroup& world,
                             absl::Time deadline);

// True if ZeRO may keep whole gradients during a step of several passes, because
// parallel.memory_bytes says that they have room.
bool HasRoomForGradients(const Job& job, const ParameterSet& parameters,
                         const optim::DenseOptimizer& dense);

}  // namespace tandem::loop
