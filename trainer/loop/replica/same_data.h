// Checks that all replicas of a job train on the same data. Trainers on several machines each read
// their own files. With a different log, a trainer would draw other users under the same numbers.
// Thread rule: the step's thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/process_group.h"
#include "trainer/tasks/job_data.h"

namespace tandem::loop {

// Returns DataLoss, on every replica, if the files differ in size or checksum. Each replica's
// message names the files that it read. Collective.
absl::Status VerifySameData(const tasks::JobData& data, comm::ProcessGroup& group,
                            absl::Time deadline);

}  // namespace tandem::loop
