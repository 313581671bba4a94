// Sequential recommendation as a task: the SequenceRec model, ranked by the state after a user's
// last item.
// Thread rule: that of Task.
#pragma once

#include "trainer/models/sequence_rec.h"
#include "trainer/tasks/ranking/ranking_task.h"

namespace tandem::tasks {

class SequenceRecTask : public RankingTask {
 public:
  static constexpr bool kIsCut = true;
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  static void ClearTrainingFields(Model* model);

  SequenceRecTask(const Job& job, const SequenceData* data, const TaskEnvironment& environment);

 protected:
  Variable BatchLoss(Context& context, const Variable& items,
                     const models::SequenceInput& batch) const override;
  Tensor UserVectors(Context& context, const Variable& items,
                     const models::SequenceInput& batch) const override;
  double Flops(const data::SequenceBatch& batch) const override;

 private:
  static Sampling SamplingOf(const SequenceRec& model);

  const models::SequenceRecOptions options_;
  models::SequenceRec model_;
};

}  // namespace tandem::tasks
