// The contents of a job's files, and the task over them. A process reads the files once and shares
// JobData among its replicas.
// Thread rule: constant after reading; any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/base/checked_file.h"
#include "proto/embedding.pb.h"
#include "proto/job.pb.h"
#include "trainer/tasks/task.h"

namespace tandem::tasks {

// Metrics of an untrained or an ideal model, shown beside a run's own metrics.
struct ReferenceColumn {
  std::string name;                       // "popularity", "best reachable"
  std::map<std::string, double> metrics;  // "hr@10"
};

class JobData {
 public:
  virtual ~JobData() = default;
  // Describes the data in words: "4,000 users, 1,000 items, 79,712 interactions".
  virtual std::string Description() const = 0;
  // Returns the symbols of a text's vocabulary, in order, as UTF-8; empty without a vocabulary.
  virtual std::string Symbols() const { return ""; }
  // Returns the files read, by path, size and checksum, in a fixed order. They identify the data.
  virtual std::vector<SavedFile> Files() const { return {}; }
  // Returns the largest id of the catalogue; 0 without a catalogue.
  virtual uint64_t num_items() const { return 0; }
  // With data.ids MAP: returns the items' ids in the order of their numbers, one per line
  // (data/id_map.h). Else empty.
  virtual std::string ItemIds() const { return ""; }
  // Returns what a checkpoint keeps of the items beside their ids (data/saved_catalogue.h). Empty
  // if nothing.
  virtual std::string Catalogue() const { return ""; }
  // Returns the number of embedding rows in use: ids 1 .. the catalogue's size, or all symbols.
  virtual int64_t num_embeddings() const = 0;
  virtual std::unique_ptr<Task> MakeTask(const Job& job,
                                         const TaskEnvironment& environment) const = 0;
  // Returns reference metrics. Takes a moment, because it counts over all data.
  virtual std::vector<ReferenceColumn> References() const = 0;
};

// The use of the data. Each use needs a different amount of data: RECOMMEND takes histories from
// elsewhere, and everything else from a checkpoint.
enum class DataUse { TRAIN, EVALUATE, RECOMMEND };

// The texts that a checkpoint keeps of its run's items: JobData::ItemIds and JobData::Catalogue.
struct SavedItems {
  std::string ids = "", catalogue = "";
};

// Returns a checkpoint's record of the file `path`.
SavedFile FileOf(const std::string& path, const FileDigest& digest);

}  // namespace tandem::tasks
