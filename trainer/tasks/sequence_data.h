// The data of a recommendation job: an interaction log with its fixed negatives.
// Thread rule: const methods from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/interactions.h"
#include "trainer/data/ranking.h"
#include "trainer/tasks/job_data.h"

namespace tandem::tasks {

class SequenceData : public JobData {
 public:
  static absl::StatusOr<std::unique_ptr<SequenceData>> Read(const Job& job,
                                                            DataUse use = DataUse::TRAIN,
                                                            const std::string& item_ids = "");
  // `path` is the file of the log. The best reachable score of a generated log lies beside it, in
  // PATH.reachable.
  SequenceData(data::Interactions interactions, std::unique_ptr<data::Negatives> negatives,
               std::string path, std::string negatives_path = "",
               std::unique_ptr<data::MappedIds> ids = nullptr)
      : interactions_(std::move(interactions)),
        negatives_(std::move(negatives)),
        path_(std::move(path)),
        negatives_path_(std::move(negatives_path)),
        ids_(std::move(ids)) {}

  const data::Interactions& interactions() const { return interactions_; }
  // Null if none were given.
  const data::Jagged* negatives() const {
    return negatives_ != nullptr ? &negatives_->lists : nullptr;
  }

  // The ids as written in the files.
  std::string ItemId(uint64_t item) const {
    return ids_ != nullptr ? ids_->items.IdOf(item) : std::to_string(item);
  }
  std::string UserId(uint64_t user) const {
    return ids_ != nullptr ? ids_->users.IdOf(user) : std::to_string(user);
  }

  std::string Description() const override;
  std::vector<SavedFile> Files() const override;
  uint64_t num_items() const override { return interactions_.num_items; }
  std::string ItemIds() const override { return ids_ != nullptr ? ids_->items.Lines() : ""; }
  int64_t num_embeddings() const override { return static_cast<int64_t>(interactions_.num_items); }
  std::unique_ptr<Task> MakeTask(const Job& job, const TaskEnvironment& environment) const override;
  std::vector<ReferenceColumn> References() const override;

 private:
  const data::Interactions interactions_;
  const std::unique_ptr<data::Negatives> negatives_;
  const std::string path_, negatives_path_;
  const std::unique_ptr<data::MappedIds> ids_;  // null: the files' ids are the numbers
};

// Writes PATH.reachable for the generated log at `path`.
absl::Status WriteReachable(const std::string& path, const data::RankingMetrics& reachable);

}  // namespace tandem::tasks
