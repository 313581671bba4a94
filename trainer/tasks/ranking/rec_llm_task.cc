#include "trainer/tasks/ranking/rec_llm_task.h"

#include <cmath>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/models/model_flops.h"
#include "trainer/models/sequence_input.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/model_chunks.h"

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

namespace {

std::deque<models::RecLlm> ChunksOf(const Job& job, const RecLlmData& data,
                                    const TaskEnvironment& environment) {
  const models::RecLlmOptions options =
      RecLlmOptionsOf(job, data.vocabulary_size(), environment.tp);
  const RecLlm& model = job.model().rec_llm();
  const int64_t candidates =
      model.loss() == SAMPLED_SOFTMAX ? model.num_negatives() : data.num_embeddings();
  const double pairs = models::MeanCausalPairs(options.max_length),
               layer = models::BlocksFlops({1, options.dim, options.ffn_dim, 1, pairs}),
               head = models::ProductFlops(1, options.dim, options.vocabulary_size + candidates);
  return ModelChunks<models::RecLlm>(options, layer, head, environment);
}

}  // namespace

RecLlmTask::RecLlmTask(const Job& job, const RecLlmData* data, const TaskEnvironment& environment)
    : job_(job),
      options_(job_.model().rec_llm()),
      data_(data),
      table_of_(RecLlmTablesOf(job)),
      pipeline_(*environment.pipeline),
      chunks_(ChunksOf(job_, *data, environment)),
      inputs_(&job_, data, model(), *environment.group, pipeline_),
      tables_(environment.tables),
      dtype_(environment.parameters->dtype()),
      ranks_{environment.group, environment.stages},
      evaluation_(&job_, data, &inputs_.sampler(), ranks_) {
  ParameterSet& parameters = *environment.parameters;
  const auto make = [&](const char* name, int64_t rows, int64_t dim, double stddev, bool is_tied) {
    ParameterPart part = nn::EqualPart(Shape{rows, dim}, environment.tp);
    part.record.tied_over_pp = is_tied && !pipeline_.is_whole();
    return parameters.Normal(name, part, stddev);
  };
  const auto of_table = [&](const char* name, int64_t rows, int table, bool is_tied) {
    return make(name, rows, job_.tables(table).dim(), job_.tables(table).init_stddev(), is_tied);
  };
  const int64_t symbols = model().vocabulary_size;
  const bool looks_up = pipeline_.has_first_stage();
  if (symbols > 0 && table_of_.token < 0 && looks_up) {
    dense_.symbols = make("embedding.tokens", symbols, options_.dim(), options_.init_stddev(),
                          /*is_tied=*/false);
  }
  if (is_served() || !pipeline_.has_an_end()) return;
  if (table_of_.token >= 0 && looks_up)
    dense_.symbols = of_table("embedding.tokens", symbols, table_of_.token, /*is_tied=*/false);
  dense_.items = of_table("items", data->num_embeddings(), table_of_.item, /*is_tied=*/true);
  if (table_of_.title >= 0)
    dense_.words = of_table("titles", options_.title_buckets(), table_of_.title, /*is_tied=*/true);
}

Variable RecLlmTask::VectorsOf(Context& context, const StepInput& input,
                               absl::Span<const Variable> rows) const {
  const auto& step = static_cast<const RecLlmStep&>(input);
  const Variable items =
      is_served() ? rows[table_of_.item] : ops::GatherRows(context, dense_.items, step.item_index);
  const Variable words = is_served() && table_of_.title >= 0 ? rows[table_of_.title] : dense_.words;
  return with_items().ItemVectors(context, items, words, step.items);
}

parallel::ArrayType RecLlmTask::RowsOf(const StepInput& input, int part) const {
  return {chunks_.front().StageShape(static_cast<const RecLlmStep&>(input).parts[part]), dtype_};
}

Variable RecLlmTask::StageRows(Context& context, const StepInput& input, int part,
                               absl::Span<const Variable> rows, int chunk,
                               const Variable& before) const {
  const models::RecLlmInput& batch = static_cast<const RecLlmStep&>(input).parts[part];
  if (before.defined())
    return chunks_[chunk].StageRows(context, Variable(), Variable(), before, batch);
  if (pipeline_.is_whole()) return Variable();  // LossSum, which needs the vectors too, does all
  return FirstRows(context, batch, rows, VectorsOf(context, input, rows));
}

Variable RecLlmTask::FirstRows(Context& context, const models::RecLlmInput& batch,
                               absl::Span<const Variable> rows, const Variable& vectors) const {
  const Variable symbols =
      is_served() && table_of_.token >= 0 ? rows[table_of_.token] : dense_.symbols;
  return chunks_.front().StageRows(context, symbols, vectors, Variable(), batch);
}

Variable RecLlmTask::LossSum(Context& context, const StepInput& input, int part,
                             absl::Span<const Variable> rows, const Variable& hidden) const {
  const auto& step = static_cast<const RecLlmStep&>(input);
  const models::RecLlmInput& batch = step.parts[part];
  const models::RecLlm& last = chunks_.back();
  const Variable vectors = VectorsOf(context, input, rows);
  const Variable states = last.AllStates(
      context, pipeline_.is_whole() ? FirstRows(context, batch, rows, vectors) : hidden, batch);
  const Variable loss =
      ops::Scale(context, last.ItemLossSum(context, states, vectors, batch), options_.item_loss());
  if (!model().predicts_text) return loss;
  return ops::Add(context, loss,
                  ops::Scale(context, last.TextLossSum(context, states, batch), step.text_weight));
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
  if (pipeline_.has_first_stage())
    RETURN_IF_ERROR(pull(table_of_.token, AllRowIds(model().vocabulary_size), &rows.symbols));
  return rows;
}

absl::Status RecLlmTask::Begin(const EvaluationArgs& args) {
  text_nats_ = text_bytes_ = 0;
  if (!pipeline_.has_an_end()) return absl::OkStatus();
  RecLlmInputs::AllItems all = inputs_.All();
  ASSIGN_OR_RETURN(const Rows rows, AllRows(all.word_ids, absl::Now() + args.timeout));
  Context context({.stream = args.stream, .seed = job_.seed(), .training = false});
  const auto move = [&](Tensor& x) { x = x.To(args.stream->device(), *args.stream); };
  for (Tensor* tensor : all.items.Tensors()) move(*tensor);
  move(all.item_index);
  const Variable item_rows =
      is_served() ? rows.items : ops::GatherRows(context, rows.items, all.item_index);
  vectors_ = with_items().ItemVectors(context, item_rows, rows.words, all.items).value();
  symbols_ = rows.symbols;
  return args.stream->status();
}

// The layers of an evaluation of blocks of users.
class RecLlmTask::EvaluationStages final : public parallel::StageLayers {
 public:
  EvaluationStages(const RecLlmTask* task, absl::Span<const Histories> blocks, Stream* stream)
      : task_(*task),
        vectors_(task_.vectors_.defined() ? Variable::Constant(task_.vectors_) : Variable()) {
    for (const Histories& histories : blocks) {
      models::RecLlmInput& input =
          inputs_.emplace_back(task_.inputs_.OfHistories(histories, &batches_.emplace_back()));
      for (Tensor* tensor : input.Tensors()) *tensor = tensor->To(stream->device(), *stream);
    }
  }

  parallel::ArrayType RowsOf(int microbatch) const override {
    return {task_.chunks_.front().StageShape(inputs_[microbatch]), task_.dtype_};
  }
  Variable Forward(Context& context, int chunk, int microbatch, const Variable& before) override {
    return task_.chunks_[chunk].StageRows(context, task_.symbols_, vectors_, before,
                                          inputs_[microbatch]);
  }
  const models::RecLlmInput& input(int microbatch) const { return inputs_[microbatch]; }
  const std::vector<int64_t>& text_targets(int microbatch) const {
    return batches_[microbatch].text_targets;
  }

 private:
  const RecLlmTask& task_;
  const Variable vectors_;
  std::deque<data::StreamBatch> batches_;
  std::vector<models::RecLlmInput> inputs_;
};

absl::Status RecLlmTask::Score(absl::Span<const Histories> blocks, const EvaluationArgs& args,
                               const TakeScores& take) {
  Stream& stream = *args.stream;
  Context context({.stream = &stream,
                   .seed = job_.seed(),
                   .training = false,
                   .deadline = absl::Now() + args.timeout});
  EvaluationStages stages(this, blocks, &stream);
  const auto score = [&](int block, const Variable& rows) {
    const models::RecLlm& last = chunks_.back();
    const models::RecLlmInput& input = stages.input(block);
    const Variable hidden = last.AllStates(context, rows, input);
    if (model().predicts_text) {
      const Tensor losses = last.TextLosses(context, hidden, input).ToHost(stream);
      const std::vector<int64_t>& targets = stages.text_targets(block);
      for (size_t i = 0; i < targets.size(); ++i) {
        text_nats_ += losses.data<float>()[i];
        text_bytes_ += static_cast<double>(data_->BytesOf(targets[i]));
      }
    }
    take(static_cast<size_t>(block),
         ScoresOf(context, models::LastRows(context, hidden, input.rows), vectors_));
  };
  return parallel::RunForwards(pipeline_, static_cast<int>(blocks.size()), stages, context, score);
}

absl::StatusOr<Evaluation> RecLlmTask::Evaluate(EvaluationSplit split, const EvaluationArgs& args) {
  ASSIGN_OR_RETURN(Evaluation evaluation, evaluation_.Evaluate(split, args, *this));
  if (evaluation.metrics.empty() || !model().predicts_text) return evaluation;
  std::vector<double> text{text_nats_, text_bytes_};
  RETURN_IF_ERROR(SumShares(ranks_, args, "text losses", &text));
  if (text[1] > 0) evaluation.metrics["text_loss"] = text[0] / text[1];
  if (!std::isfinite(text[0])) evaluation.selection = std::nan("");
  return evaluation;
}

}  // namespace tandem::tasks
