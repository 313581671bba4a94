#include "trainer/tasks/ranking/ranking_task.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "trainer/job/model_rules.h"
#include "trainer/parallel/tensor/tensor_group.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/packed_rows.h"

namespace tandem::tasks {

namespace {

constexpr char kItemTable[] = "item";
struct RankingStep : StepInput {
  std::vector<models::SequenceInput> parts;

  std::vector<Tensor*> Tensors() override {
    std::vector<Tensor*> all;
    for (models::SequenceInput& part : parts) {
      all.insert(all.end(), {&part.rows.offsets, &part.rows.positions, &part.rows.row_index,
                             &part.inputs, &part.targets});
      all.push_back(&part.negatives);
    }
    return all;
  }
};

// i64 [ids.size()]: places in the whole table. An item's number is the id of its row.
Tensor PlacesOf(absl::Span<const uint64_t> ids) {
  Tensor places = Tensor::Empty(Shape{static_cast<int64_t>(ids.size())}, DType::I64);
  std::transform(ids.begin(), ids.end(), places.data<int64_t>(), PlaceOf);
  return places;
}

}  // namespace

void RankingTask::Check(const Job& job, Limits* limits) {
  const std::string kind = job::KindOf(job.model());
  RankingEvaluation::Check(job, limits);
  if (job.tables_size() != 1 || job.tables(0).name() != kItemTable) {
    const std::string found = job.tables_size() == 1
                                  ? absl::StrCat("one table, named \"", job.tables(0).name(), "\"")
                                  : absl::StrCat(job.tables_size(), " tables");
    limits->Fail("tables", absl::StrCat(kind, " with ", found,
                                        "; allowed: exactly one table, tables { name: \"item\" }"));
  }
}

void RankingTask::Resolve(Job* job) { RankingEvaluation::Resolve(job); }

RankingTask::RankingTask(const Job& job, const SequenceData* data,
                         const TaskEnvironment& environment, const Sampling& sampling)
    : job_(job),
      data_(data),
      sampling_(sampling),
      sampler_(&data->interactions(), {.seed = job.seed(),
                                       .batch_size = job.train().batch_size(),
                                       .max_length = sampling.max_length,
                                       .sample_negatives = sampling.own_negatives}),
      parameters_(environment.parameters),
      tp_(environment.tp),
      tables_(environment.tables),
      group_(environment.group),
      evaluation_(&job_, data_, &sampler_, group_) {}

void RankingTask::MakeItems() {
  if (tables_ != nullptr) return;
  const Shape shape{num_items(), job_.tables(0).dim()};
  items_ = parameters_->Normal("items", nn::EqualPart(shape, tp_), job_.tables(0).init_stddev());
}

std::unique_ptr<StepInput> RankingTask::Prepare(int64_t step) const {
  const int64_t epoch = (step - 1) / steps_per_epoch(),
                batch_in_epoch = (step - 1) % steps_per_epoch();
  const int num_parts = job_.train().accumulate();
  std::vector<data::SequenceBatch> batches;
  std::vector<uint64_t> shared;
  if (sampling_.shared_negatives > 0)
    shared = sampler_.SharedNegatives(step, sampling_.shared_negatives);
  std::vector<absl::Span<const uint64_t>> lists{shared};  // followed by three lists per part
  for (int part = 0; part < num_parts; ++part) {
    batches.push_back(sampler_.TrainBatch(epoch, batch_in_epoch, group_->rank(), group_->size(),
                                          part, num_parts));
  }
  for (const data::SequenceBatch& batch : batches) {
    lists.insert(lists.end(), {batch.inputs, batch.targets, batch.negatives});
  }

  auto input = std::make_unique<RankingStep>();
  const bool reads_all = tables_ == nullptr || sampling_.all_items;
  sparse::MergedIds merged;
  if (!reads_all) merged = sparse::MergeIds(lists);
  if (tables_ != nullptr) input->ids = {reads_all ? AllRowIds(num_items()) : std::move(merged.ids)};
  const auto index = [&](size_t list) {
    return reads_all ? PlacesOf(lists[list]) : merged.places[list];
  };
  input->global_samples = batches[0].global_samples;
  input->global_targets = input->global_tokens = batches[0].global_targets;
  size_t list = 1;
  for (const data::SequenceBatch& batch : batches) {
    input->flops += Flops(batch);
    models::SequenceInput& part = input->parts.emplace_back();
    part.rows = PackedRowsOf(batch, sampling_.max_length);
    part.inputs = index(list);
    part.targets = index(list + 1);
    part.negatives = index(shared.empty() ? list + 2 : 0);
    list += 3;
  }
  return input;
}

Variable RankingTask::LossSum(Context& context, const StepInput& input, int part,
                              absl::Span<const Variable> rows) const {
  TANDEM_CHECK(tables_ != nullptr || items_.defined())
      << "the constructor of a RankingTask ends with MakeItems()";
  return BatchLoss(context, tables_ != nullptr ? rows[0] : items_,
                   static_cast<const RankingStep&>(input).parts[part]);
}

absl::StatusOr<Tensor> RankingTask::AllItems(absl::Duration timeout) const {
  if (tables_ == nullptr) return items_.value();
  return PullRows(*tables_, 0, AllRowIds(num_items()), absl::Now() + timeout);
}

absl::Status RankingTask::Begin(const EvaluationArgs& args) {
  ASSIGN_OR_RETURN(const Tensor rows, AllItems(args.timeout));
  // Row 0, padding, is zero and never ranked.
  rows_ = Tensor::Empty(Shape{rows.dim(0) + 1, rows.dim(1)}, DType::F32, args.stream->device());
  kernels::Fill(rows_.Rows(0, 1).view(), 0, *args.stream);
  kernels::Copy(rows_.Rows(1, rows_.dim(0)).view(), rows.view(), *args.stream);
  Context context({.stream = args.stream, .seed = job_.seed(), .training = false});
  vectors_ = ItemVectors(context, Variable::Constant(rows_));
  return absl::OkStatus();
}

Tensor RankingTask::Scores(absl::Span<const absl::Span<const uint64_t>> histories,
                           const EvaluationArgs& args) {
  Stream& stream = *args.stream;
  const data::SequenceBatch batch = sampler_.HistoryBatch(histories);
  models::SequenceInput input;
  input.rows = PackedRowsOf(batch, sampling_.max_length);
  input.inputs = Tensor::Empty(Shape{batch.num_tokens()}, DType::I64);
  std::copy(batch.inputs.begin(), batch.inputs.end(), input.inputs.data<int64_t>());
  Context context({.stream = &stream, .seed = job_.seed(), .training = false});
  const Tensor users =
      UserVectors(context, Variable::Constant(rows_), input.To(stream.device(), stream));
  const Tensor products = context.Empty(Shape{batch.num_samples(), vectors_.dim(0)}, DType::F32);
  kernels::Gemm(
      {.a = users.view(), .b = vectors_.view(), .c = products.view(), .transpose_b = true}, stream);
  return products.ToHost(stream);
}

}  // namespace tandem::tasks
