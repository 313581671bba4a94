// A saved recommender, ready to score: for commands that need only the checkpoint.
// Thread rule: the main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/cli/saved/saved_tables.h"
#include "trainer/comm/process_group.h"
#include "trainer/tasks/kinds/kinds.h"
#include "trainer/tasks/ranking/ranking_evaluation.h"
#include "trainer/tasks/ranking/sequence_data.h"

namespace tandem::cli {

class SavedRecommender {
 public:
  // `path` is a checkpoint, or a folder of several: takes the best. `new_titles` are titles of
  // items that are in no log; they get the numbers after the catalogue's. FailedPrecondition if the
  // checkpoint holds no recommender, or one that does not read titles and there are new ones.
  static absl::StatusOr<std::unique_ptr<SavedRecommender>> Load(
      const std::string& path, const std::vector<std::string>& new_titles,
      const tasks::Kinds& kinds);

  const tasks::SequenceData& data() const { return *data_; }
  tasks::ItemScorer& scorer() { return *task_->scorer(); }
  ParameterSet& parameters() { return *parameters_; }
  Stream& stream() { return *stream_; }
  tasks::EvaluationArgs args() { return {.stream = stream_.get(), .timeout = kTimeout}; }

 private:
  static constexpr absl::Duration kTimeout = absl::Minutes(10);  // a large table takes long

  Job job_;
  std::unique_ptr<tasks::JobData> files_;
  const tasks::SequenceData* data_ = nullptr;  // files_
  std::unique_ptr<SavedTables> tables_;
  std::vector<std::unique_ptr<comm::ProcessGroup>> groups_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<ParameterSet> parameters_;
  std::unique_ptr<sparse::RemoteEmbedding> embeddings_;
  std::unique_ptr<tasks::Task> task_;
};

}  // namespace tandem::cli
