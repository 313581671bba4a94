// What the files of a job hold, and the task over them. Read once per process; shared by its replicas.
// Thread rule: constant after reading; any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/checked_file.h"
#include "proto/embedding.pb.h"
#include "proto/job.pb.h"
#include "trainer/tasks/task.h"

namespace tandem::tasks {

// What an untrained or an ideal model scores: a column beside a run's own figures.
struct ReferenceColumn {
  std::string name;                       // "popularity", "best reachable"
  std::map<std::string, double> metrics;  // "hr@10"
};

class JobData {
 public:
  virtual ~JobData() = default;
  // In words: "4,000 users, 1,000 items, 79,712 interactions".
  virtual std::string Description() const = 0;
  // The symbols of a text's vocabulary, in order, as UTF-8; empty where there is none.
  virtual std::string Symbols() const { return ""; }
  // The files that were read, by path, size and checksum, always in the same order: what tells this data from other data.
  virtual std::vector<SavedFile> Files() const { return {}; }
  // The largest id of the catalogue; 0 where there is none.
  virtual uint64_t num_items() const { return 0; }
  // With data.ids MAP: the items' ids in the order of their numbers, one a line (data/id_map.h); else empty.
  virtual std::string ItemIds() const { return ""; }
  // Places of the embedding table that are used: 1 .. the catalogue's size, or all symbols.
  virtual int64_t num_embeddings() const = 0;
  virtual std::unique_ptr<Task> MakeTask(const Job& job, const TaskEnvironment& environment) const = 0;
  // Takes a moment: counts over the whole data.
  virtual std::vector<ReferenceColumn> References() const = 0;
};

// What the data is for: who has enough of it differs.
enum class DataUse { TRAIN, EVALUATE };

// DataLoss where the files hold nothing for that use, saying what is needed and what was found. `item_ids`, as JobData::ItemIds
// gives them, are the whole catalogue of a job with data.ids MAP; empty: what occurs.
absl::StatusOr<std::unique_ptr<JobData>> ReadJobData(const Job& job, DataUse use = DataUse::TRAIN, const std::string& item_ids = "");

// `path`, as a checkpoint tells of it.
SavedFile FileOf(const std::string& path, const FileDigest& digest);

}  // namespace tandem::tasks
