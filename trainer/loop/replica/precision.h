// Chooses the type that a run's matrix products are computed in. Tasks that have
// bf16 use it by default on GPUs; elsewhere a job must ask for bf16. Products in bf16 are faster on
// processors with tiles for bf16, and slower on others. So a run whose job asks for bf16 measures
// the job's own shapes once, at the start. Checkpoints keep the choice, because a second
// measurement may differ and a resumed run must compute as before.
// Thread rule: the step's thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/comm/process_group.h"
#include "trainer/tasks/task.h"

namespace tandem {
class CheckpointManifest;  // proto/checkpoint.pb.h
class Job;                 // proto/job.pb.h
}  // namespace tandem

namespace tandem::loop {

struct Precision {
  DType compute = DType::F32;
  std::string reason;  // for the user; empty if the job left no choice
};

// Chooses the precision. A measured choice is bf16 only if bf16 is faster on every replica. A
// resumed run takes the checkpoint's choice if it has one. Collective.
// `product` is Task::Bf16Product.
// REQUIRES: all replicas pass the same `resumed`; null: the run starts anew. A job that asks for
// bf16 has a product.
absl::StatusOr<Precision> ChoosePrecision(const Job& job,
                                          const std::optional<tasks::LargestProduct>& product,
                                          const CheckpointManifest* resumed, Stream& stream,
                                          comm::ProcessGroup& group, absl::Time deadline);
// Saves the choice of `job`'s run in `manifest`.
void SavePrecision(const Job& job, DType compute, CheckpointManifest* manifest);

}  // namespace tandem::loop
