#include "trainer/tasks/ranking/sequence_rec_task.h"

#include "trainer/tasks/model_chunks.h"

namespace tandem::tasks {

void SequenceRecTask::Check(const Job& job, Limits* limits) {
  RankingTask::Check(job, limits);
  CheckSequenceRec(job, limits);
}

void SequenceRecTask::Resolve(Job* job) {
  RankingTask::Resolve(job);
  ResolveSequenceRec(job);
}

void SequenceRecTask::ClearTrainingFields(Model* model) {
  SequenceRec& sequence_rec = *model->mutable_sequence_rec();
  sequence_rec.clear_dropout();
  sequence_rec.clear_init_stddev();
  sequence_rec.clear_loss();
  sequence_rec.clear_num_negatives();
}

RankingTask::Sampling SequenceRecTask::SamplingOf(const SequenceRec& model) {
  return {.max_length = model.max_length(),
          .own_negatives = model.loss() == BCE,
          .shared_negatives = model.loss() == SAMPLED_SOFTMAX ? model.num_negatives() : 0,
          .all_items = model.loss() == FULL_SOFTMAX};
}

SequenceRecTask::SequenceRecTask(const Job& job, const SequenceData* data,
                                 const TaskEnvironment& environment)
    : RankingTask(job, data, environment, SamplingOf(job.model().sequence_rec())),
      options_(SequenceRecOptionsOf(job, environment.tp)) {
  models::BlocksWork layer = WorkOf(1, models::MeanCausalPairs(options_.max_length));
  layer.layers = 1;
  chunks_ = ModelChunks<models::SequenceRec>(options_, models::BlocksFlops(layer), HeadFlops(1),
                                             environment);
  MakeItems();
}

models::BlocksWork SequenceRecTask::WorkOf(double tokens, double pairs) const {
  return {options_.layers, options_.dim, options_.ffn_dim, tokens, pairs};
}

double SequenceRecTask::HeadFlops(double tokens) const {
  // The rows in the head's product with all hidden states. The pairs of BCE cost next to nothing.
  const int64_t candidates = options_.loss == models::SequenceLossKind::FULL_SOFTMAX ? num_items()
                             : options_.loss == models::SequenceLossKind::SAMPLED_SOFTMAX
                                 ? job().model().sequence_rec().num_negatives()
                                 : 0;
  return models::ProductFlops(tokens, options_.dim, candidates);
}

double SequenceRecTask::Flops(const data::SequenceBatch& batch) const {
  const auto tokens = static_cast<double>(batch.num_tokens());
  return models::BlocksFlops(WorkOf(tokens, models::CausalPairs(batch.offsets))) +
         HeadFlops(tokens);
}

}  // namespace tandem::tasks
