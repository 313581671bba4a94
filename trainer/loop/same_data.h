// Whether all replicas of a job train on the same data. Trainers on several machines read files of their own, and one that
// reads another log would go on to draw other users under the same numbers.
// Thread rule: the step's thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"
#include "trainer/tasks/job_data.h"

namespace tandem::loop {

// DataLoss, on every replica, where the files differ in size or checksum; each says what it has read itself. Collective.
absl::Status VerifySameData(const tasks::JobData& data, comm::ProcessGroup& group, absl::Time deadline);

}  // namespace tandem::loop
