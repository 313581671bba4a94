// Recommendation as a task, for any model that gives users and items vectors of one length. Draws
// samples from an interaction log. The score of an item for a user is the product of their vectors.
// A model adds its loss over a batch and its vectors. Items are rows of one table, on servers or a
// parameter.
// Thread rule: that of Task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/data/sequence_sampler.h"
#include "trainer/models/sequence_input.h"
#include "trainer/tasks/ranking/ranking_evaluation.h"
#include "trainer/tasks/ranking/sequence_data.h"

namespace tandem::tasks {

class RankingTask : public Task, private ItemScorer {
 public:
  using Data = SequenceData;
  static constexpr bool kRanksItems = true;
  static absl::StatusOr<SequenceFiles> ReadData(const Job& job, DataUse use,
                                                const SavedItems& saved) {
    return SequenceData::Read(job, use, saved);
  }
  // The job has exactly one table, "item", and the best evaluation is chosen by a rank.
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);

  int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::unique_ptr<StepInput> Prepare(int64_t step) const override;
  parallel::ArrayType RowsOf(const StepInput& input, int part) const override;
  Variable StageRows(Context& context, const StepInput& input, int part,
                     absl::Span<const Variable> rows, int chunk,
                     const Variable& before) const override;
  Variable LossSum(Context& context, const StepInput& input, int part,
                   absl::Span<const Variable> rows, const Variable& hidden) const override;
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override {
    return evaluation_.Evaluate(split, args, *this);
  }
  ItemScorer* scorer() override { return this; }

 protected:
  struct Sampling {
    int max_length = 50;         // the number of a user's last items that the model sees
    bool own_negatives = false;  // one uniform negative for each target
    int shared_negatives = 0;    // uniform negatives shared by the step, instead of own ones
    bool all_items = false;      // the loss reads every item's row, in order
  };

  RankingTask(const Job& job, const SequenceData* data, const TaskEnvironment& environment,
              const Sampling& sampling);
  // Makes the item table as a parameter if no server holds it. A subclass calls MakeItems at the
  // end of its constructor, because parameters are in the order of their making.
  void MakeItems();

  // In these functions, `items` are item rows [n, dim] that the batch's places point into.
  //
  // The next two are for a model in stages: the shape of the rows between two stages, and the rows
  // after the layers of chunk `chunk` here (Task::StageRows). Others do all in the functions below.
  virtual Shape StageShape(const models::SequenceInput&) const { return {}; }
  virtual Variable ChunkRows(Context&, const Variable& /*items*/, const models::SequenceInput&,
                             int /*chunk*/, const Variable& /*before*/) const {
    return Variable();
  }
  // The loss of a batch, summed over its targets. `hidden` are the rows after the last stage.
  virtual Variable BatchLoss(Context& context, const Variable& items,
                             const models::SequenceInput& batch, const Variable& hidden) const = 0;
  // The vectors [samples, d] of users, from their last items.
  virtual Tensor UserVectors(Context& context, const Variable& items,
                             const models::SequenceInput& batch, const Variable& hidden) const = 0;
  // The vectors [n, d] of items.
  virtual Tensor ItemVectors(Context&, const Variable& items) const { return items.value(); }
  // The operations of the batch's products, forward and backward (models/model_flops.h).
  virtual double Flops(const data::SequenceBatch&) const { return 0; }

  const Job& job() const { return job_; }
  int64_t num_items() const { return data_->num_embeddings(); }

 private:
  // The rows of all items: row i - 1 belongs to item i, whether rows are pulled or a parameter.
  absl::StatusOr<Tensor> AllItems(absl::Duration timeout) const;
  // ItemScorer.
  absl::Status Begin(const EvaluationArgs& args) override;
  absl::Status Score(absl::Span<const Histories> blocks, const EvaluationArgs& args,
                     const TakeScores& take) override;
  Tensor AllVectors() const override { return vectors_; }

  class EvaluationStages;
  // The rows of items for a step; undefined in a stage that needs none.
  Variable ItemsOf(absl::Span<const Variable> rows) const {
    return rows.empty() ? items_ : rows[0];
  }

  const Job job_;
  const parallel::Pipeline& pipeline_;
  const SequenceData* data_;
  const Sampling sampling_;
  data::SequenceSampler sampler_;
  ParameterSet* parameters_;
  const parallel::TensorGroup* tp_;
  sparse::RemoteEmbedding* tables_;
  Variable items_;  // [items, dim]; without a table
  comm::ProcessGroup* group_;
  const RankingEvaluation evaluation_;
  // Item i is in row i, for the evaluation under way. Undefined where nobody needs items.
  Tensor rows_, vectors_;
};

}  // namespace tandem::tasks
