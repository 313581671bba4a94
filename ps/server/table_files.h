// Between a worker's tables and the files of saved rows: all tables saved, and new tables made of saved rows. What is read is
// complete and fits before anybody sees it: a refused file leaves the tables that exist as they are.
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

// One file for each table that has committed rows and is not dense (ps/server/checkpoint.h). The windows of shards that `owns` says yes to
// are in that of the first table, with or without rows.
absl::StatusOr<std::vector<SavedFile>> SaveTables(const TableMap& tables, const SavedWindows& windows, const std::string& folder,
                                                  absl::FunctionRef<bool(uint32_t)> owns);

// What to load.
struct LoadArgs {
  uint64_t step = 0;                // after which the rows were saved
  std::string folder;               // absolute
  std::vector<std::string> files;   // names in `folder`
  std::vector<ShardRange> shards;   // rows of other virtual shards are left out
  uint64_t job_epoch = 0;           // windows that another job saved are left out
};
// What was loaded.
struct LoadedTables {
  TableMap tables;
  std::vector<ShardWindow> windows;
};

// InvalidArgument, naming what is wrong, unless files are distinct names in an absolute folder and shards exist and come once.
absl::Status CheckLoadArgs(const LoadArgs& args);
// New tables, specified as `tables` are, with the rows of shards that are in args.shards and that `owns` says yes to, and their
// windows.
// FailedPrecondition names the file that does not fit: damaged, of no table, of one with another name, dim, storage or number
// of slot values, with a row of a later step or one that another file has too. REQUIRES: CheckLoadArgs(args).ok().
absl::StatusOr<LoadedTables> LoadTables(const TableMap& tables, const LoadArgs& args, absl::FunctionRef<bool(uint32_t)> owns);

}  // namespace tandem::ps
