// One replica's training run, from initial weights to the summary.
// Dense layers are synchronous and exact. Rows are too in BSP: a pull for step k + 1 sees every
// push of step k. With PERMIT, rows are pulled as many steps ahead as may be in flight.
// Thread rule: one thread per replica.
#pragma once

#include "absl/status/statusor.h"
#include "trainer/loop/replica/replica_environment.h"
#include "trainer/report/run_output.h"
#include "trainer/tasks/job_data.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::loop {

// Runs the resolved job. After an error aborts the group and the client, so that no peer waits for
// this replica.
absl::StatusOr<report::RunSummary> RunReplica(const Job& job, const tasks::JobData& data,
                                              const ReplicaEnvironment& environment);

}  // namespace tandem::loop
