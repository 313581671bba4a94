// A recommender that reads, as a task: streams of titles and items, the RecLlm model with its two
// losses, and the ranking of the whole catalogue by the state after a user's last item.
// Thread rule: that of Task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/models/rec_llm.h"
#include "trainer/tasks/ranking/ranking_evaluation.h"
#include "trainer/tasks/ranking/rec_llm_data.h"
#include "trainer/tasks/ranking/rec_llm_inputs.h"
#include "trainer/tasks/ranking/rec_llm_rules.h"

namespace tandem::tasks {

class RecLlmTask : public Task, private ItemScorer {
 public:
  using Data = RecLlmData;
  static constexpr bool kRanksItems = true;
  static constexpr bool kIsCut = true;
  static absl::StatusOr<RecLlmFiles> ReadData(const Job& job, DataUse use,
                                              const SavedItems& saved) {
    return RecLlmData::ReadFiles(job, use, saved);
  }
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  static void ClearTrainingFields(Model* model);
  static bool ReadsTitles(const Job& job) { return RecLlmTablesOf(job).title >= 0; }

  RecLlmTask(const Job& job, const RecLlmData* data, const TaskEnvironment& environment);

  int64_t steps_per_epoch() const override { return inputs_.steps_per_epoch(); }
  std::unique_ptr<StepInput> Prepare(int64_t step) const override { return inputs_.Prepare(step); }
  // The item loss, plus the text loss by the weight of each. Both are means when the loop has
  // divided the sum by the number of item targets.
  Variable LossSum(Context& context, const StepInput& input, int part,
                   absl::Span<const Variable> rows) const override;
  // Adds "text_loss", in nats per byte of the titles that the evaluated users' streams show.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override;
  ItemScorer* scorer() override { return this; }

 private:
  // The rows that all vectors are made of; undefined where the model has none.
  struct Rows {
    Variable items, words, symbols;
  };

  bool is_served() const { return tables_ != nullptr; }
  absl::StatusOr<Rows> AllRows(const std::vector<uint64_t>& words, absl::Time deadline) const;

  // ItemScorer.
  absl::Status Begin(const EvaluationArgs& args) override;
  Tensor Scores(absl::Span<const absl::Span<const uint64_t>> histories,
                const EvaluationArgs& args) override;
  Tensor AllVectors() const override { return vectors_; }

  const Job job_;
  const RecLlm& options_;  // of job_
  const RecLlmData* const data_;
  const RecLlmTables table_of_;
  const models::RecLlm model_;
  const RecLlmInputs inputs_;
  sparse::RemoteEmbedding* const tables_;
  comm::ProcessGroup* const group_;
  // Dense parameters; undefined if servers hold the rows or the model has none.
  Rows dense_;
  const RankingEvaluation evaluation_;

  // An evaluation under way.
  Tensor vectors_;  // [num_items + 1, dim]
  Variable symbols_;
  double text_nats_ = 0, text_bytes_ = 0;  // of this replica's users
};

}  // namespace tandem::tasks
