// The client that a job's consistency asks for, around the one that speaks to the tables. Thread rule: a function.
#pragma once

#include <memory>

#include "proto/job.pb.h"
#include "ps/client.h"

namespace tandem::cli {

std::unique_ptr<ps::Client> ClientOfJob(const Job& job, std::unique_ptr<ps::Client> client, int trainer, int num_trainers);

}  // namespace tandem::cli
