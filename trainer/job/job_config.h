// Loads a job: reads text format and returns one validated Job with every default filled in. The
// rest of the program only reads values and never asks whether a field was given. All errors in a
// file and its --set assignments are reported at once, one line per error: place, found value,
// allowed values.
// Thread rule: free functions without state; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

class Job;  // proto/job.pb.h
namespace job {
class Models;  // model_rules.h
}

struct LoadOptions {
  const job::Models& models;  // the kinds of model that the job may have
  // The number of trainers, which the job's layout must have. kTrainersOfLayout (layout.h): the
  // layout decides the number. 0: the layout does not matter (eval).
  int num_trainers = 0;
};

// Reads the job file at `path`, applies `sets` ("train.batch_size=64", "tables[item].dim=8") in
// order, checks the limits of job.proto and fills in its defaults. Three fields need the data and
// stay 0: data.num_items, optimizer.schedule_steps and train.max_steps. Every error is
// InvalidArgument (exit code 2).
absl::StatusOr<Job> LoadJob(const std::string& path, const std::vector<std::string>& sets,
                            const LoadOptions& options);

// Like LoadJob, for a job whose text does not come from a file. `path` is the job's name in errors.
absl::StatusOr<Job> ParseJob(const std::string& text, const std::string& path,
                             const std::vector<std::string>& sets, const LoadOptions& options);

// Equal for jobs that differ only in their name. Stable across processes and machines.
uint64_t JobFingerprint(const Job& job);

// The job in text format, readable by LoadJob.
std::string DumpJob(const Job& job);

}  // namespace tandem
