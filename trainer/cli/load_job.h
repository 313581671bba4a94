// The job of a command that trains: its file, its --set assignments and its flags of the layout.
// Thread rule: free functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "trainer/cli/run_options.h"
#include "trainer/tasks/kinds/kinds.h"

namespace tandem::cli {

// The assignments of --set, followed by those that --dp, --tp and --zero stand for.
std::vector<std::string> AssignmentsOf(const RunOptions& options);
// Loads the job. Without --trainers the number of trainers follows from the job's layout.
absl::StatusOr<Job> LoadJobOf(const RunOptions& options, const tasks::Kinds& kinds);

}  // namespace tandem::cli
