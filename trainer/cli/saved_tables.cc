#include "trainer/cli/saved_tables.h"

#include "absl/strings/str_cat.h"

namespace tandem::cli {

absl::StatusOr<std::unique_ptr<SavedTables>> SavedTables::Load(const checkpoint::Checkpoint& saved, int num_workers,
                                                               absl::Duration timeout) {
  std::unique_ptr<SavedTables> tables(new SavedTables(num_workers));
  absl::Status status =
      tables->client_.CreateTables({saved.manifest.tables().begin(), saved.manifest.tables().end()}, timeout);
  if (status.ok()) {
    const auto loaded = tables->client_.Load(saved.manifest.step(), saved.folder, saved.RowFiles());
    status = loaded.Wait(absl::InfiniteFuture()).status();  // reading a file ends by itself
  }
  if (status.ok()) return tables;
  return absl::FailedPreconditionError(absl::StrCat("checkpoint ", status.message()));
}

}  // namespace tandem::cli
