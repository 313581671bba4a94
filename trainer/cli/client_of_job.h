// Wraps the client that speaks to the tables in the decorators that a job asks for.
// Thread rule: free functions.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "ps/client/clients.h"
#include "ps/client/merged_pushes.h"
#include "trainer/comm/process_group.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::cli {

// The group of the trainers that are clients. Null if `rank` is no client. Collective over
// `trainers`; `owned` keeps the group.
absl::StatusOr<comm::ProcessGroup*> ClientsAmong(const Job& job, comm::ProcessGroup& trainers,
                                                 std::unique_ptr<comm::ProcessGroup>* owned);

// Returns `clients`, or, if the job asks for it, those in a client that merges pushes over the
// ranks of `trainers`. `pushes` is the innermost client. Collective over `trainers`. `num_servers`
// is 0 for local tables. REQUIRES: the ranks of `trainers` are on this host.
absl::StatusOr<ps::ClientStack> MergePushes(const Job& job, ps::ClientStack clients,
                                            ps::MergedPushes& pushes, comm::ProcessGroup& trainers,
                                            int num_servers);
// Adds the consistency and the cache that the job asks for. `client` is job::ClientOf the trainer.
ps::ClientStack ClientOfJob(const Job& job, ps::ClientStack clients, int client);

}  // namespace tandem::cli
