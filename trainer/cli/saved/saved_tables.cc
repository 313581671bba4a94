#include "trainer/cli/saved/saved_tables.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/job/job_config.h"

namespace tandem::cli {

absl::Status CheckSavedJob(const checkpoint::Checkpoint& saved, const job::Models& models) {
  const auto job = ParseJob(DumpJob(saved.manifest.job()), "job", {}, {.models = models});
  if (job.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", saved.folder, ": no job has the fields of its manifest's: ",
                   job.status().message(), "; take another checkpoint"));
}

absl::StatusOr<std::unique_ptr<SavedTables>> SavedTables::Load(const checkpoint::Checkpoint& saved,
                                                               int num_workers,
                                                               absl::Duration timeout) {
  std::unique_ptr<SavedTables> tables(new SavedTables(num_workers));
  RETURN_IF_ERROR(tables->client_.CreateTables(
      {saved.manifest.tables().begin(), saved.manifest.tables().end()}, timeout));
  RETURN_IF_ERROR(checkpoint::LoadRows(saved, tables->client_, absl::Now() + timeout));
  return tables;
}

}  // namespace tandem::cli
