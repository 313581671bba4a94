#include "ps/server/table_files.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "ps/server/checkpoint.h"
#include "ps/store/table.h"
#include "ps/wire/value_guard.h"

namespace tandem::ps {
namespace {

// InvalidArgument if a range exceeds the existing shards or two ranges overlap.
absl::StatusOr<ShardSet> ShardsOf(const std::vector<ShardRange>& ranges) {
  ShardSet shards;
  for (const ShardRange& range : ranges) {
    if (range.count() == 0 || range.first() >= shards.size() ||
        range.count() > shards.size() - range.first()) {
      return absl::InvalidArgumentError(absl::StrCat("load: ", range.count(),
                                                     " virtual shards from ", range.first(),
                                                     "; there are ", shards.size()));
    }
    for (uint32_t shard = range.first(); shard < range.first() + range.count(); ++shard) {
      if (shards.test(shard))
        return absl::InvalidArgumentError(
            absl::StrCat("load: virtual shard ", shard, " comes twice"));
      shards.set(shard);
    }
  }
  return shards;
}

// Returns the table of `tables` that the file's rows belong to.
absl::StatusOr<Table*> FindTable(const TableMap& tables, const std::string& path,
                                 const RowFileHeader& header) {
  const auto wrong = [&path](auto... text) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", text...));
  };
  const auto found = tables.find(header.number);
  if (found == tables.end())
    return wrong("there is no table ", header.number, " (", header.table, ")");
  Table* const table = found->second.get();
  const TableSpec& spec = table->spec();
  const size_t num_slot_values = table->layout().num_slot_values();
  if (header.table == spec.name() && header.dim == spec.dim() && header.storage == spec.storage() &&
      header.num_slot_values == num_slot_values) {
    return table;
  }
  return wrong("has rows of table ", header.table, " with dim ", header.dim, " in ",
               NameOf(header.storage), " and ", header.num_slot_values,
               " slot values; the job's table ", spec.name(), " has dim ", spec.dim(), " in ",
               NameOf(spec.storage()), " and ", num_slot_values, " slot values");
}

absl::Status LoadFile(const std::string& path, const LoadArgs& args,
                      absl::FunctionRef<bool(uint32_t)> wants, LoadedTables* loaded) {
  const auto wrong = [&path](const RowHeader& row, auto... text) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": row ", row.id, text...));
  };
  Table* table = nullptr;
  const auto begin = [&](const RowFileHeader& header) -> absl::Status {
    ASSIGN_OR_RETURN(table, FindTable(loaded->tables, path, header));
    return absl::OkStatus();
  };
  const auto visit = [&](const SavedRow& row) {
    if (row.header.last_step > args.step) {
      return wrong(row.header, " is of step ", row.header.last_step, ", later than ", args.step);
    }
    if (!AllFinite(table->layout(), row.values))
      return wrong(row.header, " ", kNotFinite, "; take another checkpoint");
    if (!table->Restore(row.header, row.values))
      return wrong(row.header, " is in another file too");
    return absl::OkStatus();
  };
  const auto visit_window = [&](uint64_t job_epoch, const ShardWindow& window) {
    // A job in one process has no epoch and no windows, because each of its processes is a job of
    // its own.
    if (job_epoch == args.job_epoch && job_epoch != 0) loaded->windows.push_back(window);
    return absl::OkStatus();
  };
  return ReadRows(path, begin, wants, visit, visit_window);
}

}  // namespace

absl::StatusOr<std::vector<SavedFile>> SaveTables(const TableMap& tables,
                                                  const SavedWindows& windows,
                                                  const std::string& folder,
                                                  absl::FunctionRef<bool(uint32_t)> owns) {
  SavedWindows unwritten{windows.job_epoch, {}};
  if (windows.job_epoch != 0) {
    std::copy_if(windows.windows.begin(), windows.windows.end(),
                 std::back_inserter(unwritten.windows),
                 [&](const ShardWindow& window) { return owns(window.shard); });
  }
  std::vector<SavedFile> files;
  for (const auto& [number, table] : tables) {
    if (table->spec().dense()) continue;
    table->PrepareSave();
    ASSIGN_OR_RETURN(const std::optional<SavedFile> file, SaveRows(*table, folder, unwritten));
    unwritten.windows.clear();
    if (file.has_value()) files.push_back(*file);
  }
  return files;
}

absl::Status CheckLoadArgs(const LoadArgs& args) {
  if (args.folder.empty() || args.folder[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("load: folder \"", args.folder, "\" is not an absolute path"));
  }
  std::set<std::string> names;
  for (const std::string& name : args.files) {
    if (!IsPlainFileName(name))
      return absl::InvalidArgumentError(
          absl::StrCat("load: \"", name, "\" is not the name of a file"));
    if (!names.insert(name).second)
      return absl::InvalidArgumentError(absl::StrCat("load: file ", name, " comes twice"));
  }
  return ShardsOf(args.shards).status();
}

absl::StatusOr<LoadedTables> LoadTables(const TableMap& tables, const LoadArgs& args,
                                        absl::FunctionRef<bool(uint32_t)> owns) {
  ASSIGN_OR_RETURN(const ShardSet shards, ShardsOf(args.shards));
  LoadedTables loaded;
  for (const auto& [number, table] : tables)
    loaded.tables[number] = std::make_unique<Table>(table->spec());
  const auto wants = [&](uint32_t shard) { return shards.test(shard) && owns(shard); };
  for (const std::string& name : args.files) {
    RETURN_IF_ERROR(LoadFile(absl::StrCat(args.folder, "/", name), args, wants, &loaded));
  }
  for (const auto& [number, table] : loaded.tables) table->BeginAfter(args.step);
  return loaded;
}

}  // namespace tandem::ps
