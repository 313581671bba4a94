// The place that a scheduler gives to a process, in variables of its environment. Kubernetes gives
// the pods of an Indexed Job JOB_COMPLETION_INDEX; torchrun gives its processes RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT.
// Thread rule: the main thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace tandem::cli {

// Fills in the rank (-1: open) and the master's address (empty: open) of a "trainer", "ps",
// "worker" or "master". A line on stderr says where the rank comes from. torchrun starts trainers
// alone, so others ignore its variables. InvalidArgument if two sources disagree, a variable is no
// number, or a trainer has no master; all at once.
absl::Status AskScheduler(const std::string& role, int& index, std::string& master);
// InvalidArgument unless torchrun's WORLD_SIZE, where there is one, equals `num_trainers`.
absl::Status CheckWorldSize(int num_trainers);
// Takes the variables away, so that children of this process are not taken for it.
void ForgetScheduler();

}  // namespace tandem::cli
