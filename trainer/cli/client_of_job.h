// The client that a job asks for, around the one that speaks to the tables. Thread rule: functions.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "ps/client/client.h"
#include "trainer/comm/process_group.h"

namespace tandem::cli {

// `client`, or one that merges pushes over the ranks of `trainers`, all on this host, if the job asks for it. Collective over them. With
// `num_servers` servers, or none: tables here.
absl::StatusOr<std::unique_ptr<ps::Client>> MergePushes(const Job& job, std::unique_ptr<ps::Client> client,
                                                        comm::ProcessGroup& trainers, int num_servers);
// What its consistency and cache ask for.
std::unique_ptr<ps::Client> ClientOfJob(const Job& job, std::unique_ptr<ps::Client> client, int trainer, int num_trainers);

}  // namespace tandem::cli
