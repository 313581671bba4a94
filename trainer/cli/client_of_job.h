// Wraps the client that speaks to the tables in the decorators that a job asks for.
// Thread rule: free functions.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "ps/client/client.h"
#include "trainer/comm/process_group.h"

namespace tandem::cli {

// Returns `client`, or a client that merges pushes over the ranks of `trainers` if the job asks for
// merging. Collective over `trainers`. `num_servers` is 0 for local tables.
// REQUIRES: the ranks of `trainers` are on this host.
absl::StatusOr<std::unique_ptr<ps::Client>> MergePushes(const Job& job, std::unique_ptr<ps::Client> client,
                                                        comm::ProcessGroup& trainers, int num_servers);
// Adds the consistency and the cache that the job asks for.
std::unique_ptr<ps::Client> ClientOfJob(const Job& job, std::unique_ptr<ps::Client> client, int trainer, int num_trainers);

}  // namespace tandem::cli
