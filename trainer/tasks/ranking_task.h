// Recommendation as a task, for any model that gives users and items vectors of one length. Draws
// samples from an interaction log. Ranks the whole catalogue, and fixed negatives. The score of an
// item for a user is the product of their vectors. A model adds its loss over a batch and its
// vectors. Items are rows of one table, on servers or a parameter. Replicas share the evaluated
// users. Thread rule: that of Task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/data/batch_share.h"
#include "trainer/data/sequence_sampler.h"
#include "trainer/models/sequence_input.h"
#include "trainer/tasks/sequence_data.h"

namespace tandem::tasks {

class RankingTask : public Task {
 public:
  using Data = SequenceData;
  static absl::StatusOr<SequenceFiles> ReadData(const Job& job, DataUse use,
                                                const std::string& item_ids) {
    return SequenceData::Read(job, use, item_ids);
  }
  // The job has exactly one table, "item", and the best evaluation is chosen by a rank.
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);

  int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::unique_ptr<StepInput> Prepare(int64_t step) const override;
  Variable LossSum(Context& context, const StepInput& input, int part,
                   const Variable& rows) const override;
  // A line of the dump holds user, target, rank and the 20 best unseen items. Tabs separate them;
  // ids are as in the file.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override;

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
  // The loss of a batch, summed over its targets.
  virtual Variable BatchLoss(Context& context, const Variable& items,
                             const models::SequenceInput& batch) const = 0;
  // The vectors [samples, d] of users, from their last items.
  virtual Tensor UserVectors(Context& context, const Variable& items,
                             const models::SequenceInput& batch) const = 0;
  // The vectors [n, d] of items.
  virtual Tensor ItemVectors(Context&, const Variable& items) const { return items.value(); }
  // The operations of the batch's products, forward and backward (models/model_flops.h).
  virtual double Flops(const data::SequenceBatch&) const { return 0; }

  const Job& job() const { return job_; }
  int64_t num_items() const { return data_->num_embeddings(); }

 private:
  // An evaluation under way. Ranks of other replicas' users are 0 until they are summed.
  struct Scoring {
    data::Split split = data::Split::VALID;
    Tensor rows, vectors;               // of item i in row i
    std::vector<double> full, sampled;  // ranks, one for each evaluated user
  };

  // The rows of all items: row i - 1 belongs to item i, whether rows are pulled or a parameter.
  absl::StatusOr<Tensor> AllItems(absl::Duration timeout) const;
  absl::Status FillScoring(const EvaluationArgs& args, Scoring& scoring) const;
  // The scores [samples, n] of all items for the batch's users, in host memory.
  Tensor Scores(const data::SequenceBatch& batch, const Scoring& scoring, Stream& stream) const;
  // Writes the ranks of a block of the evaluated users to their places.
  void RankUsers(const data::BatchShare& block, const EvaluationArgs& args, Scoring& scoring) const;
  std::string LineOf(const Scoring& scoring, int64_t user, double rank,
                     absl::Span<const float> scores) const;
  Evaluation Summary(const Scoring& scoring) const;

  const Job job_;
  const SequenceData* data_;
  const Sampling sampling_;
  data::SequenceSampler sampler_;
  ParameterSet* parameters_;
  sparse::RemoteEmbedding* table_;
  Variable items_;  // [items, dim]; without a table
  comm::ProcessGroup* group_;
};

}  // namespace tandem::tasks
