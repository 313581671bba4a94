#include "trainer/tasks/ranking/ranking_task.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"
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
      pipeline_(*environment.pipeline),
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
      evaluation_(&job_, data_, &sampler_, {environment.group, environment.stages}) {}

void RankingTask::MakeItems() {
  if (job_.placement() == Job::PS || !pipeline_.has_an_end()) return;
  ParameterPart part = nn::EqualPart(Shape{num_items(), job_.tables(0).dim()}, tp_);
  part.record.tied_over_pp = !pipeline_.is_whole();
  items_ = parameters_->Normal("items", part, job_.tables(0).init_stddev());
}

std::unique_ptr<StepInput> RankingTask::Prepare(int64_t step) const {
  const int64_t epoch = (step - 1) / steps_per_epoch(),
                batch_in_epoch = (step - 1) % steps_per_epoch();
  const int num_parts = job_.parallel().microbatches();
  const bool looks_up = pipeline_.has_first_stage(), compares = pipeline_.has_last_stage();
  std::vector<data::SequenceBatch> batches;
  std::vector<uint64_t> shared;
  if (sampling_.shared_negatives > 0 && compares)
    shared = sampler_.SharedNegatives(step, sampling_.shared_negatives);
  // Followed by three lists per part. Those that nobody here reads are empty.
  std::vector<absl::Span<const uint64_t>> lists{shared};
  for (int part = 0; part < num_parts; ++part) {
    batches.push_back(sampler_.TrainBatch(epoch, batch_in_epoch, group_->rank(), group_->size(),
                                          part, num_parts));
  }
  for (const data::SequenceBatch& batch : batches) {
    const auto used = [](bool is_used, const std::vector<uint64_t>& list) {
      return is_used ? absl::Span<const uint64_t>(list) : absl::Span<const uint64_t>();
    };
    lists.insert(lists.end(), {used(looks_up, batch.inputs), used(compares, batch.targets),
                               used(compares, batch.negatives)});
  }

  auto input = std::make_unique<RankingStep>();
  const bool reads_all = tables_ == nullptr || (sampling_.all_items && compares);
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

parallel::ArrayType RankingTask::RowsOf(const StepInput& input, int part) const {
  return {StageShape(static_cast<const RankingStep&>(input).parts[part]), parameters_->dtype()};
}

Variable RankingTask::StageRows(Context& context, const StepInput& input, int part,
                                absl::Span<const Variable> rows, int chunk,
                                const Variable& before) const {
  return ChunkRows(context, ItemsOf(rows), static_cast<const RankingStep&>(input).parts[part],
                   chunk, before);
}

Variable RankingTask::LossSum(Context& context, const StepInput& input, int part,
                              absl::Span<const Variable> rows, const Variable& hidden) const {
  const Variable items = ItemsOf(rows);
  TANDEM_CHECK(items.defined()) << "the constructor of a RankingTask ends with MakeItems()";
  return BatchLoss(context, items, static_cast<const RankingStep&>(input).parts[part], hidden);
}

absl::StatusOr<Tensor> RankingTask::AllItems(absl::Duration timeout) const {
  if (tables_ == nullptr) return items_.value();
  return PullRows(*tables_, 0, AllRowIds(num_items()), absl::Now() + timeout);
}

absl::Status RankingTask::Begin(const EvaluationArgs& args) {
  if (!pipeline_.has_an_end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Tensor rows, AllItems(args.timeout));
  // Row 0, padding, is zero and never ranked.
  rows_ = Tensor::Empty(Shape{rows.dim(0) + 1, rows.dim(1)}, DType::F32, args.stream->device());
  kernels::Fill(rows_.Rows(0, 1).view(), 0, *args.stream);
  kernels::Copy(rows_.Rows(1, rows_.dim(0)).view(), rows.view(), *args.stream);
  if (!pipeline_.has_last_stage()) return absl::OkStatus();
  Context context({.stream = args.stream, .seed = job_.seed(), .training = false});
  vectors_ = ItemVectors(context, Variable::Constant(rows_));
  return absl::OkStatus();
}

// The layers of an evaluation of blocks of users.
class RankingTask::EvaluationStages final : public parallel::StageLayers {
 public:
  EvaluationStages(const RankingTask* task, absl::Span<const Histories> blocks, Stream* stream)
      : task_(*task), items_(task_.rows_.defined() ? Variable::Constant(task_.rows_) : Variable()) {
    for (const Histories& histories : blocks) {
      const data::SequenceBatch batch = task_.sampler_.HistoryBatch(histories);
      models::SequenceInput input;
      input.rows = PackedRowsOf(batch, task_.sampling_.max_length);
      input.inputs = Tensor::Empty(Shape{batch.num_tokens()}, DType::I64);
      std::copy(batch.inputs.begin(), batch.inputs.end(), input.inputs.data<int64_t>());
      inputs_.push_back(input.To(stream->device(), *stream));
    }
  }

  parallel::ArrayType RowsOf(int microbatch) const override {
    return {task_.StageShape(inputs_[microbatch]), task_.parameters_->dtype()};
  }
  Variable Forward(Context& context, int chunk, int microbatch, const Variable& before) override {
    return task_.ChunkRows(context, items_, inputs_[microbatch], chunk, before);
  }
  Tensor Users(Context& context, int microbatch, const Variable& hidden) const {
    return task_.UserVectors(context, items_, inputs_[microbatch], hidden);
  }

 private:
  const RankingTask& task_;
  const Variable items_;
  std::vector<models::SequenceInput> inputs_;
};

absl::Status RankingTask::Score(absl::Span<const Histories> blocks, const EvaluationArgs& args,
                                const TakeScores& take) {
  Stream& stream = *args.stream;
  Context context({.stream = &stream,
                   .seed = job_.seed(),
                   .training = false,
                   .deadline = absl::Now() + args.timeout});
  EvaluationStages stages(this, blocks, &stream);
  return parallel::RunForwards(
      pipeline_, static_cast<int>(blocks.size()), stages, context,
      [&](int block, const Variable& hidden) {
        take(static_cast<size_t>(block),
             ScoresOf(context, stages.Users(context, block, hidden), vectors_));
      });
}

}  // namespace tandem::tasks
