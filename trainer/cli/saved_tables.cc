#include "trainer/cli/saved_tables.h"

#include "kernels/base/status_macros.h"

namespace tandem::cli {

absl::StatusOr<std::unique_ptr<SavedTables>> SavedTables::Load(const checkpoint::Checkpoint& saved, int num_workers,
                                                               absl::Duration timeout) {
  std::unique_ptr<SavedTables> tables(new SavedTables(num_workers));
  RETURN_IF_ERROR(tables->client_.CreateTables({saved.manifest.tables().begin(), saved.manifest.tables().end()}, timeout));
  RETURN_IF_ERROR(checkpoint::LoadRows(saved, tables->client_, absl::Now() + timeout));
  return tables;
}

}  // namespace tandem::cli
