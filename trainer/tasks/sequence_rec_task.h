// Sequential recommendation as a task: samples from an interaction log, the SequenceRec model, and
// ranking metrics over the whole catalogue and over fixed negatives. Replicas share the evaluated
// users.
// Thread rule: that of Task.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "trainer/data/batch_share.h"
#include "trainer/data/sequence_sampler.h"
#include "trainer/models/sequence_rec.h"
#include "trainer/tasks/sequence_data.h"

namespace tandem::tasks {

class SequenceRecTask : public Task {
 public:
  using Data = SequenceData;
  static absl::StatusOr<SequenceFiles> ReadData(const Job& job, DataUse use,
                                                const std::string& item_ids) {
    return SequenceData::Read(job, use, item_ids);
  }
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  static void ClearTrainingFields(Model* model);

  SequenceRecTask(const Job& job, const SequenceData* data, const TaskEnvironment& environment);

  int64_t steps_per_epoch() const override { return sampler_.steps_per_epoch(); }
  std::unique_ptr<StepInput> Prepare(int64_t step) const override;
  Variable LossSum(Context& context, const StepInput& input, int part,
                   const Variable& rows) const override;
  // A line of the dump holds user, target, rank and the 20 best unseen items. Tabs separate them;
  // ids are as in the file.
  absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) override;

 private:
  // The rows of all items: row i - 1 belongs to item i, whether rows are pulled or a parameter.
  absl::StatusOr<Tensor> AllItems(absl::Duration timeout) const;
  // Writes the ranks of a block of the evaluated users to their places in `full` and `sampled`.
  void RankUsers(data::Split split, const data::BatchShare& block, const Tensor& items,
                 const EvaluationArgs& args, std::vector<double>& full,
                 std::vector<double>& sampled) const;

  const Job job_;
  const SequenceData* data_;
  data::SequenceSampler sampler_;
  models::SequenceRec model_;
  sparse::RemoteEmbedding* table_;
  Variable items_;  // [items, dim]; without a table
  comm::ProcessGroup* group_;
};

}  // namespace tandem::tasks
