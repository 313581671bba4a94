#include "trainer/loop/sequence_rec_task.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/base/status_macros.h"
#include "kernels/gemm.h"
#include "trainer/data/ranking.h"
#include "trainer/loop/job_options.h"

namespace tandem::loop {

namespace {

constexpr int kTopItems = 20;  // of an example
constexpr int64_t kEvaluationUsers = 256;  // a block of users scored together; never changes their bits or ranks

struct SequenceStep : StepInput {
  std::vector<models::SequenceInput> parts;
};

nn::PackedRows PackedRowsOf(const data::SequenceBatch& batch, int64_t max_length) {
  return {.offsets = Tensor::FromVector(batch.offsets),
          .positions = Tensor::FromVector(batch.positions),
          .row_index = Tensor::FromVector(batch.row_index),
          .max_length = max_length};
}

bool UsesBce(const Job& job) { return job.model().sequence_rec().loss() == BCE; }

}  // namespace

absl::StatusOr<SequenceData> ReadSequenceData(const Job& job) {
  SequenceData data;
  const auto read = job.data().format() == PAIRS ? data::ReadPairs : data::ReadSequences;
  ASSIGN_OR_RETURN(data.interactions, read(job.data().path(), job.data().num_items()));
  if (!job.data().negatives_path().empty()) {
    ASSIGN_OR_RETURN(data::Jagged negatives, data::ReadNegatives(job.data().negatives_path(), data.interactions));
    data.negatives = std::make_unique<data::Jagged>(std::move(negatives));
  }
  return data;
}

SequenceRecTask::SequenceRecTask(const Job& job, const SequenceData* data, ParameterSet& parameters,
                                 remote::RemoteEmbedding* items, comm::ProcessGroup* group)
    : job_(job),
      data_(data),
      sampler_(&data->interactions, {.seed = job.seed(),
                                     .batch_size = job.train().batch_size(),
                                     .max_length = job.model().sequence_rec().max_length(),
                                     .sample_negatives = UsesBce(job)}),
      model_(SequenceRecOptionsOf(job), parameters),
      items_(items),
      group_(group) {}

std::unique_ptr<StepInput> SequenceRecTask::Prepare(int64_t step) const {
  const models::SequenceRecOptions options = SequenceRecOptionsOf(job_);
  const int64_t epoch = (step - 1) / steps_per_epoch(), index = (step - 1) % steps_per_epoch();
  const int num_parts = job_.train().accumulate();
  std::vector<data::SequenceBatch> batches;
  std::vector<uint64_t> shared;
  if (options.loss == models::SequenceLossKind::SAMPLED_SOFTMAX) {
    shared = sampler_.SharedNegatives(step, job_.model().sequence_rec().num_negatives());
  }
  std::vector<absl::Span<const uint64_t>> lists{shared};
  for (int part = 0; part < num_parts; ++part) {
    batches.push_back(sampler_.TrainBatch(epoch, index, group_->rank(), group_->size(), part, num_parts));
  }
  for (const data::SequenceBatch& batch : batches) {
    lists.insert(lists.end(), {batch.inputs, batch.targets, batch.negatives});
  }

  auto input = std::make_unique<SequenceStep>();
  if (options.loss == models::SequenceLossKind::FULL_SOFTMAX) {
    input->ids.resize(data_->interactions.num_items);
    std::iota(input->ids.begin(), input->ids.end(), uint64_t{1});
  } else {
    input->ids = remote::UniqueIds(lists);
  }
  input->global_samples = batches[0].global_samples;
  input->global_targets = input->global_tokens = batches[0].global_targets;
  for (const data::SequenceBatch& batch : batches) {
    models::SequenceInput& part = input->parts.emplace_back();
    part.rows = PackedRowsOf(batch, options.max_length);
    part.inputs = remote::IndexInto(input->ids, batch.inputs);
    part.targets = remote::IndexInto(input->ids, batch.targets);
    part.negatives = remote::IndexInto(input->ids, shared.empty() ? batch.negatives : shared);
  }
  return input;
}

Variable SequenceRecTask::LossSum(Context& context, const StepInput& input, int part, const Variable& rows) const {
  return model_.LossSum(context, rows, static_cast<const SequenceStep&>(input).parts[part]);
}

absl::Status SequenceRecTask::RankUsers(data::Split split, const Tensor& items, Stream& stream,
                                        std::vector<double>& full, std::vector<double>& sampled,
                                        const ExampleVisitor& visit) const {
  const int64_t users = sampler_.num_eval_users(), size = group_->size(), rank = group_->rank();
  const int64_t end = (rank + 1) * users / size, num_scores = items.dim(0);
  const Variable table = Variable::Constant(items);
  for (int64_t begin = rank * users / size; begin < end; begin += kEvaluationUsers) {
    const data::SequenceBatch batch = sampler_.EvalBatch(split, begin, std::min(end, begin + kEvaluationUsers));
    models::SequenceInput input;
    input.rows = PackedRowsOf(batch, job_.model().sequence_rec().max_length());
    input.inputs = Tensor::Empty(Shape{batch.num_tokens()}, DType::I64);
    std::copy(batch.inputs.begin(), batch.inputs.end(), input.inputs.data<int64_t>());
    Context context({.stream = &stream, .seed = job_.seed(), .training = false});
    const Tensor states = model_.LastStates(context, table, input);
    Tensor scores = Tensor::Empty(Shape{batch.num_samples(), num_scores}, DType::F32);
    kernels::Gemm({.a = states.view(), .b = items.view(), .c = scores.view(), .transpose_b = true}, stream);
    std::vector<RankedExample> examples(visit ? batch.num_samples() : 0);
    stream.pool().ParallelFor(batch.num_samples(), [&](int64_t s) {
      const int64_t user = batch.users[s];
      const uint64_t target = sampler_.EvalTarget(split, user);
      const absl::Span<const float> row(scores.data<float>() + s * num_scores, num_scores);
      const absl::Span<const uint64_t> seen = sampler_.History(split, user);
      full[begin + s] = data::RankOf(row, target, seen);
      if (visit) {
        examples[s] = {data_->interactions.users[user], target, full[begin + s],
                       data::TopIds(row, target, seen, kTopItems)};
      }
      if (sampled.empty()) return;
      std::vector<float> others;
      for (uint64_t id : data_->negatives->row(user)) others.push_back(row[id]);
      sampled[begin + s] = data::RankAmong(row[target], others);
    });
    if (visit) visit(examples);
  }
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> SequenceRecTask::Evaluate(EvaluationSplit split, Stream& stream, absl::Time deadline,
                                                     const ExampleVisitor& visit) {
  std::vector<uint64_t> ids(data_->interactions.num_items);
  std::iota(ids.begin(), ids.end(), uint64_t{1});
  auto pulled = items_->Pull(/*step=*/0, /*create=*/false, std::move(ids));
  ASSIGN_OR_RETURN(const Tensor rows, pulled->Await(deadline));
  // Row i of the scoring table is item i: row 0, padding, is zero and never ranked.
  Tensor items = Tensor::Zeros(Shape{rows.dim(0) + 1, rows.dim(1)}, DType::F32);
  std::memcpy(items.Rows(1, items.dim(0)).raw(), rows.raw(), rows.num_bytes());

  const data::Split data_split = split == EvaluationSplit::VALID ? data::Split::VALID : data::Split::TEST;
  std::vector<double> full(sampler_.num_eval_users(), 0), sampled(data_->negatives ? full.size() : 0, 0);
  RETURN_IF_ERROR(RankUsers(data_split, items, stream, full, sampled, visit));
  for (std::vector<double>* ranks : {&full, &sampled}) {  // every place has one non-zero addend: the sum is exact
    const ArrayView view = DenseView(ranks->data(), Shape{static_cast<int64_t>(ranks->size())});
    RETURN_IF_ERROR(group_->Await(group_->AllReduce(view, {.stream = &stream, .tag = StableHash("ranks")}), deadline));
  }

  Evaluation evaluation;
  auto report = [&evaluation](const std::string& prefix, const std::vector<double>& ranks) {
    const data::RankingMetrics m = data::Summarise(ranks);
    const std::map<std::string, double> named{{"hr@1", m.hr1},     {"hr@5", m.hr5},       {"hr@10", m.hr10},
                                              {"hr@20", m.hr20},   {"ndcg@5", m.ndcg5},   {"ndcg@10", m.ndcg10},
                                              {"ndcg@20", m.ndcg20}, {"mrr", m.mrr}};
    for (const auto& [name, value] : named) evaluation.metrics[prefix + name] = value;
    return m.mrr;
  };
  evaluation.selection = report("", full);
  if (!sampled.empty()) {
    const double mrr = report("sampled_", sampled);
    if (job_.train().select_by() == VALID_SAMPLED_MRR) evaluation.selection = mrr;
  }
  return evaluation;
}

}  // namespace tandem::loop
