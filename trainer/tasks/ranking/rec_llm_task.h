// A recommender that reads, as a task: streams of titles and items, the RecLlm model with its two
// losses, and the ranking of the whole catalogue by the state after a user's last item.
// Thread rule: that of Task.
#pragma once

#include <deque>
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
  static int NumLayers(const Model& model) { return RecLlmLayers(model.rec_llm()); }
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
  parallel::ArrayType RowsOf(const StepInput& input, int part) const override;
  Variable StageRows(Context& context, const StepInput& input, int part,
                     absl::Span<const Variable> rows, int chunk,
                     const Variable& before) const override;
  // The item loss, plus the text loss by the weight of each. Both are means when the loop has
  // divided the sum by the number of item targets.
  Variable LossSum(Context& context, const StepInput& input, int part,
                   absl::Span<const Variable> rows, const Variable& hidden) const override;
  // Adds "text_loss", in nats per byte of the titles that the evaluated users' streams show.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override;
  ItemScorer* scorer() override { return this; }

 private:
  // The rows that all vectors are made of; undefined where the model has none.
  struct Rows {
    Variable items, words, symbols;
  };

  class EvaluationStages;
  bool is_served() const { return job_.placement() == Job::PS; }
  // The chunk that has the layers of items. REQUIRES: an end is here.
  const models::RecLlm& with_items() const {
    return pipeline_.has_first_stage() ? chunks_.front() : chunks_.back();
  }
  const models::RecLlmOptions& model() const { return chunks_.front().options(); }
  // The rows after the first chunk of layers, of a batch whose items have these vectors.
  Variable FirstRows(Context& context, const models::RecLlmInput& batch,
                     absl::Span<const Variable> rows, const Variable& vectors) const;
  // The vectors of a step's items, made of its rows.
  Variable VectorsOf(Context& context, const StepInput& input,
                     absl::Span<const Variable> rows) const;
  absl::StatusOr<Rows> AllRows(const std::vector<uint64_t>& words, absl::Time deadline) const;

  // ItemScorer.
  absl::Status Begin(const EvaluationArgs& args) override;
  absl::Status Score(absl::Span<const Histories> blocks, const EvaluationArgs& args,
                     const TakeScores& take) override;
  Tensor AllVectors() const override { return vectors_; }

  const Job job_;
  const RecLlm& options_;  // of job_
  const RecLlmData* const data_;
  const RecLlmTables table_of_;
  const parallel::Pipeline& pipeline_;
  const std::deque<models::RecLlm> chunks_;  // the blocks of each chunk that this rank has
  const RecLlmInputs inputs_;
  sparse::RemoteEmbedding* const tables_;
  const DType dtype_;  // of the rows between stages
  // Dense parameters; undefined if servers hold the rows or the model has none.
  Rows dense_;
  const EvaluationRanks ranks_;
  const RankingEvaluation evaluation_;

  // An evaluation under way.
  Tensor vectors_;  // [num_items + 1, dim]; undefined where nobody needs items
  Variable symbols_;
  double text_nats_ = 0, text_bytes_ = 0;  // of this replica's users
};

}  // namespace tandem::tasks
