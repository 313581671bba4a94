#include "trainer/tasks/text/text_task.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/models/gpt_decoder.h"
#include "trainer/models/model_flops.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/model_chunks.h"
#include "trainer/tasks/packed_rows.h"

namespace tandem::tasks {

namespace {

// A block of windows evaluated together; its size never changes their losses.
constexpr int64_t kEvaluationTokens = 8192;

struct TextStep : StepInput {
  std::vector<models::GptInput> parts;

  std::vector<Tensor*> Tensors() override {
    std::vector<Tensor*> all;
    for (models::GptInput& part : parts) {
      all.insert(all.end(), {&part.rows.offsets, &part.rows.positions, &part.rows.row_index,
                             &part.inputs, &part.targets});
    }
    return all;
  }
};

std::vector<uint64_t> RowIdsOf(const std::vector<int64_t>& symbols) {
  std::vector<uint64_t> ids(symbols.size());
  std::transform(symbols.begin(), symbols.end(), ids.begin(), RowIdOf);
  return ids;
}

models::GptInput InputOf(const data::WindowBatch& batch, int64_t max_length) {
  return {.rows = PackedRowsOf(batch, max_length),
          .inputs = Tensor::FromVector(batch.inputs),
          .targets = Tensor::FromVector(batch.targets)};
}

models::BlocksWork WorkOf(const models::GptOptions& options, double tokens, double pairs) {
  const int64_t kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads;
  return {.layers = options.layers,
          .dim = options.dim,
          .ffn_dim = options.ffn_dim,
          .tokens = tokens,
          .pairs = pairs,
          .kv_dim = options.dim / options.heads * kv_heads,
          .ffn_matrices = options.gated ? 3 : 2};
}

// The blocks of each chunk that this rank has.
std::deque<models::Gpt> ChunksOf(models::GptOptions options, const TaskEnvironment& environment) {
  options.tp = environment.tp;
  models::BlocksWork layer = WorkOf(options, 1, models::MeanCausalPairs(options.max_length));
  layer.layers = 1;
  return ModelChunks<models::Gpt>(options, models::BlocksFlops(layer),
                                  models::ProductFlops(1, options.dim, options.vocabulary_size),
                                  environment);
}

double FlopsOf(const data::WindowBatch& batch, const models::GptOptions& options) {
  const auto tokens = static_cast<double>(batch.inputs.size());
  const double pairs =
      static_cast<double>(batch.num_samples()) * models::CausalPairs(options.max_length);
  return models::BlocksFlops(WorkOf(options, tokens, pairs)) +
         models::ProductFlops(tokens, options.dim, options.vocabulary_size);
}

class GptTextDecoder : public TextDecoder {
 public:
  GptTextDecoder(const DecoderArgs& args, const models::GptOptions& options)
      : gpt_(options, args.parameters), decoder_(&gpt_, args.rows, args.stream) {}
  Tensor Feed(absl::Span<const int64_t> symbols) override { return decoder_.Feed(symbols); }

 private:
  const models::Gpt gpt_;
  models::GptDecoder decoder_;
};

// The token rows of a step; undefined if no rows come from outside, or none are needed here.
Variable TokensOf(absl::Span<const Variable> rows) { return rows.empty() ? Variable() : rows[0]; }

}  // namespace

std::unique_ptr<TextDecoder> TextTask::DecoderOf(const DecoderArgs& args,
                                                 const models::GptOptions& options) {
  return std::make_unique<GptTextDecoder>(args, options);
}

TextTask::TextTask(const Job& job, const TextData* data, const TaskEnvironment& environment,
                   const models::GptOptions& options)
    : job_(job),
      pipeline_(*environment.pipeline),
      sampler_(&data->text(), {.seed = job.seed(),
                               .batch_size = job.train().batch_size(),
                               .max_length = static_cast<int>(options.max_length)}),
      dtype_(environment.parameters->dtype()),
      chunks_(ChunksOf(options, environment)),
      tables_(environment.tables),
      ranks_{environment.group, environment.stages} {}

std::unique_ptr<StepInput> TextTask::Prepare(int64_t step) const {
  auto input = std::make_unique<TextStep>();
  const int num_parts = job_.parallel().microbatches();
  std::vector<std::vector<uint64_t>> part_ids;
  for (int part = 0; part < num_parts; ++part) {
    const data::WindowBatch batch = sampler_.TrainBatch(step, ranks_.replicas->rank(),
                                                        ranks_.replicas->size(), part, num_parts);
    input->global_samples = batch.global_samples;
    input->global_targets = input->global_tokens = batch.global_targets;
    input->flops += FlopsOf(batch, options());
    input->parts.push_back(InputOf(batch, options().max_length));
    if (tables_ != nullptr) part_ids.push_back(RowIdsOf(batch.inputs));
  }
  if (tables_ == nullptr) return input;
  if (options().tied_embeddings && pipeline_.has_last_stage()) {  // the head reads every row
    input->ids = {AllRowIds(options().vocabulary_size)};
  } else if (pipeline_.has_first_stage()) {
    sparse::MergedIds merged =
        sparse::MergeIds(std::vector<absl::Span<const uint64_t>>(part_ids.begin(), part_ids.end()));
    input->ids = {std::move(merged.ids)};
    for (int part = 0; part < num_parts; ++part) input->parts[part].inputs = merged.places[part];
  } else {
    input->ids = {{}};
  }
  return input;
}

parallel::ArrayType TextTask::RowsOf(const StepInput& input, int part) const {
  return {chunks_.front().StageShape(static_cast<const TextStep&>(input).parts[part]), dtype_};
}

Variable TextTask::StageRows(Context& context, const StepInput& input, int part,
                             absl::Span<const Variable> rows, int chunk,
                             const Variable& before) const {
  return chunks_[chunk].StageRows(context, TokensOf(rows), before,
                                  static_cast<const TextStep&>(input).parts[part]);
}

Variable TextTask::LossSum(Context& context, const StepInput& input, int part,
                           absl::Span<const Variable> rows, const Variable& hidden) const {
  const models::GptInput& batch = static_cast<const TextStep&>(input).parts[part];
  const models::Gpt& last = chunks_.back();
  return last.LossSum(context, TokensOf(rows), last.Enter(context, hidden, batch), batch.targets);
}

// The layers of an evaluation of blocks of windows.
class TextTask::EvaluationStages final : public parallel::StageLayers {
 public:
  EvaluationStages(const TextTask* task, absl::Span<const data::BatchShare> blocks,
                   const Variable& rows, Stream* stream)
      : task_(*task), rows_(rows) {
    for (const data::BatchShare& block : blocks) {
      const data::WindowBatch batch = task_.sampler_.EvalBatch(block.begin, block.end);
      inputs_.push_back(InputOf(batch, task_.options().max_length).To(stream->device(), *stream));
    }
  }

  parallel::ArrayType RowsOf(int microbatch) const override {
    return {task_.chunks_.front().StageShape(inputs_[microbatch]), task_.dtype_};
  }
  Variable Forward(Context& context, int chunk, int microbatch, const Variable& before) override {
    return task_.chunks_[chunk].StageRows(context, rows_, before, inputs_[microbatch]);
  }
  // The cross entropy of each symbol of a block, in the host's memory.
  Tensor Losses(Context& context, int microbatch, const Variable& stream) const {
    const models::Gpt& last = task_.chunks_.back();
    const models::GptInput& input = inputs_[microbatch];
    return last.Losses(context, rows_, last.Enter(context, stream, input), input.targets)
        .ToHost(context.stream());
  }

 private:
  const TextTask& task_;
  const Variable& rows_;
  std::vector<models::GptInput> inputs_;
};

absl::Status TextTask::WindowLosses(absl::Span<const data::BatchShare> blocks, const Variable& rows,
                                    const EvaluationArgs& args, std::vector<double>& losses) const {
  const int64_t length = options().max_length;
  Context context({.stream = args.stream,
                   .seed = job_.seed(),
                   .training = false,
                   .deadline = absl::Now() + args.timeout});
  EvaluationStages stages(this, blocks, rows, args.stream);
  const auto take = [&](int b, const Variable& stream) {
    const Tensor tokens = stages.Losses(context, b, stream);
    for (int64_t w = 0; w < blocks[b].size(); ++w) {
      double& loss = losses[blocks[b].begin + w];
      for (int64_t i = 0; i < length; ++i) loss += tokens.At(w * length + i);
      if (args.dump) {
        args.dump(absl::StrCat(blocks[b].begin + w, "\t", length, "\t",
                               loss / static_cast<double>(length)));
      }
    }
  };
  return parallel::RunForwards(pipeline_, static_cast<int>(blocks.size()), stages, context, take);
}

absl::StatusOr<Evaluation> TextTask::Evaluate(EvaluationSplit split, const EvaluationArgs& args) {
  if (split == EvaluationSplit::TEST) return Evaluation();
  Variable rows;
  const bool reads_rows =
      pipeline_.has_first_stage() || (options().tied_embeddings && pipeline_.has_last_stage());
  if (tables_ != nullptr && reads_rows) {
    ASSIGN_OR_RETURN(
        const Tensor values,
        PullRows(*tables_, 0, AllRowIds(options().vocabulary_size), absl::Now() + args.timeout));
    rows = Variable::Constant(values);
  }
  std::vector<double> losses(static_cast<size_t>(sampler_.num_eval_windows()), 0);
  const int64_t block_windows = std::max<int64_t>(1, kEvaluationTokens / options().max_length);
  ASSIGN_OR_RETURN(const bool whole,
                   ForEachBlock(sampler_.num_eval_windows(), block_windows, ranks_, args,
                                [&](absl::Span<const data::BatchShare> blocks) {
                                  return WindowLosses(blocks, rows, args, losses);
                                }));
  if (!whole) return Evaluation();
  RETURN_IF_ERROR(SumShares(ranks_, args, "window losses", &losses));
  const double symbols =
      static_cast<double>(losses.size()) * static_cast<double>(options().max_length);
  Evaluation evaluation;
  evaluation.metrics["loss"] = std::accumulate(losses.begin(), losses.end(), 0.0) / symbols;
  evaluation.selection = -evaluation.metrics["loss"];
  evaluation.decides = "loss";
  return evaluation;
}

std::optional<LargestProduct> TextTask::Bf16Product() const {
  const int64_t tokens = int64_t{job_.train().batch_size()} * options().max_length /
                         ranks_.replicas->size() / job_.parallel().microbatches();
  return LargestProduct{tokens, options().dim, options().ffn_dim};
}

}  // namespace tandem::tasks
