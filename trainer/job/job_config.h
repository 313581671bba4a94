// Loading a job: text format in, one validated Job with every default filled in out. The rest of the program reads values
// only and never asks whether a field was given. Everything wrong with a file and its --set assignments is reported at
// once, one line per error: place, what was found, what is allowed.
// Free functions without state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

class Job;  // proto/job.pb.h

struct LoadOptions {
  int num_trainers = 0;  // what parallel.dp must equal; 0: the layout does not matter (eval) and dp may be anything
};

// Reads the job file at `path`, applies `sets` ("train.batch_size=64", "tables[item].dim=8") in order, checks the limits of
// job.proto and fills in its defaults. Three of them need the data and stay 0: data.num_items, optimizer.schedule_steps and
// train.max_steps. Everything wrong is InvalidArgument (exit code 2).
absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& sets, const LoadOptions& options);

// The same for a job whose text did not come from a file; `path` is its name in errors.
absl::StatusOr<Job> ParseJob(const std::string& text, const std::string& path, const std::vector<std::string>& sets,
                             const LoadOptions& options);

// Equal for jobs that are equal but for their name; stable across processes and machines.
uint64_t JobFingerprint(const Job& job);

// The job in text format, as LoadJob reads it.
std::string DumpJob(const Job& job);

}  // namespace tandem
