// Sequential recommendation as a task: the SequenceRec model, ranked by the state after a user's
// last item.
// Thread rule: that of Task.
#pragma once

#include <deque>

#include "trainer/models/model_flops.h"
#include "trainer/models/sequence_rec.h"
#include "trainer/tasks/ranking/ranking_task.h"
#include "trainer/tasks/ranking/sequence_rec_rules.h"

namespace tandem::tasks {

class SequenceRecTask : public RankingTask {
 public:
  static constexpr bool kIsCut = true;
  static int NumLayers(const Model& model) { return SequenceRecLayers(model.sequence_rec()); }
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  static void ClearTrainingFields(Model* model);

  SequenceRecTask(const Job& job, const SequenceData* data, const TaskEnvironment& environment);

 protected:
  Shape StageShape(const models::SequenceInput& batch) const override {
    return chunks_.front().StageShape(batch);
  }
  Variable ChunkRows(Context& context, const Variable& items, const models::SequenceInput& batch,
                     int chunk, const Variable& before) const override {
    return chunks_[chunk].StageRows(context, items, before, batch);
  }
  Variable BatchLoss(Context& context, const Variable& items, const models::SequenceInput& batch,
                     const Variable& hidden) const override {
    return chunks_.back().LossSum(context, items, hidden, batch);
  }
  Tensor UserVectors(Context& context, const Variable& /*items*/,
                     const models::SequenceInput& batch, const Variable& hidden) const override {
    return chunks_.back().LastStates(context, hidden, batch);
  }
  double Flops(const data::SequenceBatch& batch) const override;

 private:
  static Sampling SamplingOf(const SequenceRec& model);
  // The operations of `tokens` hidden states in all layers, and in the product with items.
  models::BlocksWork WorkOf(double tokens, double pairs) const;
  double HeadFlops(double tokens) const;

  const models::SequenceRecOptions options_;
  std::deque<models::SequenceRec> chunks_;  // the blocks of each chunk that this rank has
};

}  // namespace tandem::tasks
