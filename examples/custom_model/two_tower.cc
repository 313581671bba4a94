#include "two_tower.h"

#include "trainer/models/sequence_input.h"

using namespace tandem;  // NOLINT: a program, not a library

namespace {

TwoTower::Settings SettingsOf(const Job& job) {
  job::CustomOptions options(job);
  return TwoTower::Options(options);
}

// The mean of the rows of a user's items so far, [T, dim]. Attention without queries and keys gives
// every item so far the same weight.
Variable MeanSoFar(Context& context, const Variable& rows, const nn::PackedRows& places) {
  const int64_t dim = rows.shape()[1];
  Stream& stream = context.stream();
  const Tensor zeros = Tensor::Zeros(Shape{rows.shape()[0], 2 * dim}, DType::F32);
  const Variable no_queries = Variable::Constant(zeros.To(stream.device(), stream));
  return ops::SelfAttention(context, ops::Concat(context, {no_queries, rows}), places.offsets,
                            places.row_index,
                            {.heads = 1, .max_length = places.max_length, .causal = true});
}

}  // namespace

TwoTower::Settings TwoTower::Options(job::CustomOptions& options) {
  return {.dim = static_cast<int>(options.Int("dim", 32, 1, 4096)),
          .negatives = static_cast<int>(options.Int("negatives", 64, 1, 100000)),
          .max_length = static_cast<int>(options.Int("max_length", 20, 1, 4096))};
}

TwoTower::Sampling TwoTower::SamplingOf(const Settings& settings) {
  return {.max_length = settings.max_length, .shared_negatives = settings.negatives};
}

TwoTower::TwoTower(const Job& job, const tasks::SequenceData* data,
                   const tasks::TaskEnvironment& environment)
    : RankingTask(job, data, environment, SamplingOf(SettingsOf(job))),
      user_tower_(*environment.parameters, "user_tower", 2 * job.tables(0).dim(),
                  SettingsOf(job).dim, {.init = nn::Init::UNIFORM_FAN_IN}),
      item_tower_(*environment.parameters, "item_tower", job.tables(0).dim(), SettingsOf(job).dim,
                  {.init = nn::Init::UNIFORM_FAN_IN}) {
  MakeItems();
}

Variable TwoTower::Users(Context& context, const Variable& items,
                         const models::SequenceInput& batch) const {
  const Variable rows = ops::GatherRows(context, items, batch.inputs);
  const Variable mean = MeanSoFar(context, rows, batch.rows);
  return user_tower_.Forward(context, ops::Concat(context, {mean, rows}));
}

Variable TwoTower::BatchLoss(Context& context, const Variable& items,
                             const models::SequenceInput& batch, const Variable& /*hidden*/) const {
  return models::SampledSoftmaxSum(context, Users(context, items, batch),
                                   item_tower_.Forward(context, items),
                                   {batch.targets, batch.negatives});
}

Tensor TwoTower::UserVectors(Context& context, const Variable& items,
                             const models::SequenceInput& batch, const Variable& /*hidden*/) const {
  return models::LastRows(context, Users(context, items, batch), batch.rows);
}

Tensor TwoTower::ItemVectors(Context& context, const Variable& items) const {
  return item_tower_.Forward(context, items).value();
}
