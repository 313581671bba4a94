#include "trainer/cli/saved_tables.h"

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"

namespace tandem::cli {

absl::StatusOr<std::unique_ptr<SavedTables>> SavedTables::Load(const checkpoint::Checkpoint& saved, int num_workers,
                                                               absl::Duration timeout) {
  std::unique_ptr<SavedTables> tables(new SavedTables(num_workers));
  absl::Status status =
      tables->client_.CreateTables({saved.manifest.tables().begin(), saved.manifest.tables().end()}, timeout);
  if (status.ok()) {
    absl::Notification loaded;  // without a deadline: reading a file ends by itself
    tables->host_.Load(saved.RowPaths(), [&](absl::Status result) {
      status = std::move(result);
      loaded.Notify();
    });
    loaded.WaitForNotification();
  }
  if (status.ok()) return tables;
  return absl::FailedPreconditionError(absl::StrCat("checkpoint ", status.message()));
}

}  // namespace tandem::cli
