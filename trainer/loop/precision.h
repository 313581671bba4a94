// What a run's matrix products are computed in. It is the default of language models on GPUs; elsewhere a job asks for it. bf16 pays where the processor has tiles for it and loses where it has not: the
// job's own shapes are measured once, at the start. Checkpoints keep the choice: another start may measure otherwise, and a run
// that goes on must compute as it did.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "trainer/comm/process_group.h"

namespace tandem::loop {

struct Precision {
  DType compute = DType::F32;
  std::string reason;  // for the reader; empty where the job left no choice
};

// Collective: all replicas choose alike, bf16 only where it is faster for each of them. `resumed`, null for a run from the start,
// is the same for all and decides if it can.
absl::StatusOr<Precision> ChoosePrecision(const Job& job, const CheckpointManifest* resumed, Stream& stream,
                                          comm::ProcessGroup& group, absl::Time deadline);
// Keeps the choice of `job`'s run.
void SavePrecision(const Job& job, DType compute, CheckpointManifest* manifest);

}  // namespace tandem::loop
