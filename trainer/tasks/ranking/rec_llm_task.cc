#include "trainer/tasks/ranking/rec_llm_task.h"

#include <cmath>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "kernels/gemm.h"
#include "trainer/models/sequence_input.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/evaluation_blocks.h"

namespace tandem::tasks {

void RecLlmTask::Check(const Job& job, Limits* limits) {
  RankingEvaluation::Check(job, limits);
  CheckRecLlm(job, limits);
}

void RecLlmTask::Resolve(Job* job) {
  RankingEvaluation::Resolve(job);
  ResolveRecLlm(job);
}

void RecLlmTask::ClearTrainingFields(Model* model) {
  RecLlm& rec_llm = *model->mutable_rec_llm();
  rec_llm.clear_dropout();
  rec_llm.clear_init_stddev();
  rec_llm.clear_item_loss();
  rec_llm.clear_row_dropout();
  rec_llm.clear_loss();
  rec_llm.clear_num_negatives();
}

RecLlmTask::RecLlmTask(const Job& job, const RecLlmData* data, const TaskEnvironment& environment)
    : job_(job),
      options_(job_.model().rec_llm()),
      data_(data),
      table_of_(RecLlmTablesOf(job)),
      model_(RecLlmOptionsOf(job, data->vocabulary_size(), environment.tp),
             *environment.parameters),
      inputs_(&job_, data, model_.options(), *environment.group),
      tables_(environment.tables),
      group_(environment.group),
      evaluation_(&job_, data, &inputs_.sampler(), group_) {
  ParameterSet& parameters = *environment.parameters;
  const auto make = [&](const char* name, int64_t rows, int table) {
    const Shape shape{rows, job_.tables(table).dim()};
    return parameters.Normal(name, nn::EqualPart(shape, environment.tp),
                             job_.tables(table).init_stddev());
  };
  const int64_t symbols = model_.options().vocabulary_size;
  if (symbols > 0 && table_of_.token < 0) {
    const Shape shape{symbols, options_.dim()};
    dense_.symbols = parameters.Normal("embedding.tokens", nn::EqualPart(shape, environment.tp),
                                       options_.init_stddev());
  }
  if (is_served()) return;
  if (table_of_.token >= 0) dense_.symbols = make("embedding.tokens", symbols, table_of_.token);
  dense_.items = make("items", data->num_embeddings(), table_of_.item);
  if (table_of_.title >= 0)
    dense_.words = make("titles", options_.title_buckets(), table_of_.title);
}

Variable RecLlmTask::LossSum(Context& context, const StepInput& input, int part,
                             absl::Span<const Variable> rows) const {
  const auto& step = static_cast<const RecLlmStep&>(input);
  const models::RecLlmInput& batch = step.parts[part];
  const auto rows_of = [&](int table, const Variable& dense) {
    return is_served() && table >= 0 ? rows[table] : dense;
  };
  const Variable items =
      is_served() ? rows[table_of_.item] : ops::GatherRows(context, dense_.items, step.item_index);
  const Variable vectors =
      model_.ItemVectors(context, items, rows_of(table_of_.title, dense_.words), step.items);
  const Variable hidden =
      model_.Encode(context, rows_of(table_of_.token, dense_.symbols), vectors, batch);
  const Variable loss = ops::Scale(context, model_.ItemLossSum(context, hidden, vectors, batch),
                                   options_.item_loss());
  if (!model_.options().predicts_text) return loss;
  return ops::Add(
      context, loss,
      ops::Scale(context, model_.TextLossSum(context, hidden, batch), step.text_weight));
}

absl::StatusOr<RecLlmTask::Rows> RecLlmTask::AllRows(const std::vector<uint64_t>& words,
                                                     absl::Time deadline) const {
  Rows rows = dense_;
  const auto pull = [&](int table, const std::vector<uint64_t>& ids, Variable* to) -> absl::Status {
    if (!is_served() || table < 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Tensor values, PullRows(*tables_, table, ids, deadline));
    *to = Variable::Constant(values);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(pull(table_of_.item, inputs_.trained(), &rows.items));
  RETURN_IF_ERROR(pull(table_of_.title, words, &rows.words));
  RETURN_IF_ERROR(
      pull(table_of_.token, AllRowIds(model_.options().vocabulary_size), &rows.symbols));
  return rows;
}

absl::Status RecLlmTask::Begin(const EvaluationArgs& args) {
  RecLlmInputs::AllItems all = inputs_.All();
  ASSIGN_OR_RETURN(const Rows rows, AllRows(all.word_ids, absl::Now() + args.timeout));
  Context context({.stream = args.stream, .seed = job_.seed(), .training = false});
  const auto move = [&](Tensor& x) { x = x.To(args.stream->device(), *args.stream); };
  for (Tensor* tensor : all.items.Tensors()) move(*tensor);
  move(all.item_index);
  const Variable item_rows =
      is_served() ? rows.items : ops::GatherRows(context, rows.items, all.item_index);
  vectors_ = model_.ItemVectors(context, item_rows, rows.words, all.items).value();
  symbols_ = rows.symbols;
  text_nats_ = text_bytes_ = 0;
  return args.stream->status();
}

Tensor RecLlmTask::Scores(absl::Span<const absl::Span<const uint64_t>> histories,
                          const EvaluationArgs& args) {
  Stream& stream = *args.stream;
  data::StreamBatch batch;
  models::RecLlmInput input = inputs_.OfHistories(histories, &batch);
  for (Tensor* tensor : input.Tensors()) *tensor = tensor->To(stream.device(), stream);
  Context context({.stream = &stream, .seed = job_.seed(), .training = false});
  const Variable hidden = model_.Encode(context, symbols_, Variable::Constant(vectors_), input);
  const Tensor users = models::LastRows(context, hidden, input.rows);
  const Tensor scores = context.Empty(Shape{users.dim(0), vectors_.dim(0)}, DType::F32);
  kernels::Gemm({.a = users.view(), .b = vectors_.view(), .c = scores.view(), .transpose_b = true},
                stream);
  if (model_.options().predicts_text) {
    const Tensor losses = model_.TextLosses(context, hidden, input).ToHost(stream);
    for (size_t i = 0; i < batch.text_targets.size(); ++i) {
      text_nats_ += losses.data<float>()[i];
      text_bytes_ += static_cast<double>(data_->BytesOf(batch.text_targets[i]));
    }
  }
  return scores.ToHost(stream);
}

absl::StatusOr<Evaluation> RecLlmTask::Evaluate(EvaluationSplit split, const EvaluationArgs& args) {
  ASSIGN_OR_RETURN(Evaluation evaluation, evaluation_.Evaluate(split, args, *this));
  if (evaluation.metrics.empty() || !model_.options().predicts_text) return evaluation;
  std::vector<double> text{text_nats_, text_bytes_};
  RETURN_IF_ERROR(SumShares(*group_, args, "text losses", &text));
  if (text[1] > 0) evaluation.metrics["text_loss"] = text[0] / text[1];
  if (!std::isfinite(text[0])) evaluation.selection = std::nan("");
  return evaluation;
}

}  // namespace tandem::tasks
