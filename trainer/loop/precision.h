// What a run's matrix products are computed in. bf16 pays where the processor has tiles for it and loses where it has not: the
// job's own shapes are measured once, at the start.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "trainer/comm/process_group.h"

namespace tandem::loop {

struct Precision {
  DType compute = DType::F32;
  std::string reason;  // for the reader; empty where the job left no choice
};

// Collective: all replicas choose alike, bf16 only where it is faster for each of them.
absl::StatusOr<Precision> ChoosePrecision(const Job& job, Stream& stream, comm::ProcessGroup& group, absl::Time deadline);

}  // namespace tandem::loop
