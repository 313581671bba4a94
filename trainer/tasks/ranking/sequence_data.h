// The data of a recommendation job: an interaction log with its fixed negatives.
// Thread rule: const methods from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/interactions.h"
#include "trainer/data/ranking.h"
#include "trainer/data/saved_catalogue.h"
#include "trainer/data/titles.h"
#include "trainer/tasks/job_data.h"

namespace tandem::tasks {

// The files of a recommendation job, as read. The best reachable score of a generated log lies
// beside the log, in PATH.reachable.
struct SequenceFiles {
  data::Interactions interactions;
  std::unique_ptr<data::Negatives> negatives = nullptr;  // null: none given
  std::string path = "", negatives_path = "";
  std::unique_ptr<data::MappedIds> ids = nullptr;  // null: the files' ids are the numbers
  std::unique_ptr<data::Titles> titles = nullptr;  // null: none given
  std::string items_path = "";
  std::vector<int64_t> training_counts = {};  // by item, of the run that trains or has trained
  int64_t cold_below = 0;                     // Job.eval
};

// Its task is that of the kind of model (DataOf in kind.h).
class SequenceData : public JobData {
 public:
  // The rules of Job.data for this data.
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  // For RECOMMEND, data.num_items is the checkpoint's, unless ids are mapped.
  static absl::StatusOr<SequenceFiles> Read(const Job& job, DataUse use, const SavedItems& saved);
  explicit SequenceData(SequenceFiles files) : files_(std::move(files)) {}

  const data::Interactions& interactions() const { return files_.interactions; }
  // Null if none were given.
  const data::Jagged* negatives() const {
    return files_.negatives != nullptr ? &files_.negatives->lists : nullptr;
  }

  // The number of an id as written in the files; 0 if the catalogue does not have the id.
  uint64_t FindItem(const std::string& id) const;
  bool has_titles() const { return files_.titles != nullptr; }
  // Empty without titles.
  const std::string& ItemTitle(uint64_t item) const {
    static const std::string none;
    return files_.titles != nullptr ? files_.titles->of_item[item] : none;
  }
  // How often training sees each item, [num_items + 1]. Of an evaluated checkpoint: saw.
  const std::vector<int64_t>& training_counts() const { return files_.training_counts; }
  int64_t cold_below() const { return files_.cold_below; }

  // The ids as written in the files.
  std::string ItemId(uint64_t item) const {
    return files_.ids != nullptr ? files_.ids->items.IdOf(item) : std::to_string(item);
  }
  std::string UserId(uint64_t user) const {
    return files_.ids != nullptr ? files_.ids->users.IdOf(user) : std::to_string(user);
  }

  std::string Description() const override;
  std::vector<SavedFile> Files() const override;
  uint64_t num_items() const override { return files_.interactions.num_items; }
  std::string ItemIds() const override {
    return files_.ids != nullptr ? files_.ids->items.Lines() : "";
  }
  std::string Catalogue() const override {
    return files_.titles != nullptr ? CatalogueLines() : "";
  }
  int64_t num_embeddings() const override {
    return static_cast<int64_t>(files_.interactions.num_items);
  }
  std::vector<ReferenceColumn> References() const override;

 protected:
  std::string CatalogueLines() const {
    static const std::vector<std::string> none;
    return data::CatalogueLines(files_.training_counts,
                                files_.titles != nullptr ? files_.titles->of_item : none);
  }

 private:
  const SequenceFiles files_;
};

// Writes PATH.reachable for the generated log at `path`.
absl::Status WriteReachable(const std::string& path, const data::RankingMetrics& reachable);

}  // namespace tandem::tasks
