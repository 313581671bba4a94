// Saves a worker's tables to files, and makes new tables from saved rows. Rows are complete and
// checked before anybody sees them: a refused file leaves existing tables as they are.
// Thread rule: free functions; tables belong to the calling thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/server/push_windows.h"
#include "ps/server/table_worker.h"

namespace tandem::ps {

// Writes one file for each table that has committed rows and is not dense (ps/server/checkpoint.h).
// The first table's file, with or without rows, gets the windows of the shards that `owns` accepts.
absl::StatusOr<std::vector<SavedFile>> SaveTables(const TableMap& tables,
                                                  const SavedWindows& windows,
                                                  const std::string& folder,
                                                  absl::FunctionRef<bool(uint32_t)> owns);

// The arguments of a load.
struct LoadArgs {
  uint64_t step = 0;               // the step after which the rows were saved
  std::string folder;              // absolute
  std::vector<std::string> files;  // names in `folder`
  std::vector<ShardRange> shards;  // rows of other virtual shards are left out
  uint64_t job_epoch = 0;          // windows that another job saved are left out
};
// The result of a load.
struct LoadedTables {
  TableMap tables;
  std::vector<ShardWindow> windows;
};

// InvalidArgument, naming the defect, unless files are distinct names, `folder` is absolute, and
// shards exist and are distinct.
absl::Status CheckLoadArgs(const LoadArgs& args);
// Returns new tables with the specs of `tables`, with the rows and windows of shards that are in
// args.shards and that `owns` accepts. FailedPrecondition names a file that does not fit:
//  - the file is damaged, or its table does not exist;
//  - its table has another name, dim, storage or number of slot values;
//  - it has a row of a later step, or a row that another file has too.
// REQUIRES: CheckLoadArgs(args).ok().
absl::StatusOr<LoadedTables> LoadTables(const TableMap& tables, const LoadArgs& args,
                                        absl::FunctionRef<bool(uint32_t)> owns);

}  // namespace tandem::ps
