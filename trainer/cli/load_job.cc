#include "trainer/cli/load_job.h"

#include "absl/strings/str_cat.h"
#include "trainer/job/job_config.h"
#include "trainer/job/layout.h"

namespace tandem::cli {

std::vector<std::string> AssignmentsOf(const RunOptions& options) {
  std::vector<std::string> sets = options.sets;
  const auto add = [&sets](const char* field, const std::optional<int>& value) {
    if (value) sets.push_back(absl::StrCat("parallel.", field, "=", *value));
  };
  add("dp", options.dp);
  add("tp", options.tp);
  add("pp", options.pp);
  add("zero", options.zero);
  return sets;
}

absl::StatusOr<Job> LoadJobOf(const RunOptions& options, const tasks::Kinds& kinds) {
  return LoadJob(options.job_path, AssignmentsOf(options),
                 {.models = kinds.models(),
                  .num_trainers = options.num_trainers.value_or(job::kTrainersOfLayout)});
}

}  // namespace tandem::cli
