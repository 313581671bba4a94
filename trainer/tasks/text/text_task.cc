#include "trainer/tasks/text/text_task.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/models/gpt_decoder.h"
#include "trainer/models/model_flops.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/evaluation_blocks.h"
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

models::GptOptions CutBy(models::GptOptions options, const parallel::TensorGroup* tp) {
  options.tp = tp;
  return options;
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

}  // namespace

std::unique_ptr<TextDecoder> TextTask::DecoderOf(const DecoderArgs& args,
                                                 const models::GptOptions& options) {
  return std::make_unique<GptTextDecoder>(args, options);
}

TextTask::TextTask(const Job& job, const TextData* data, const TaskEnvironment& environment,
                   const models::GptOptions& options)
    : job_(job),
      sampler_(&data->text(), {.seed = job.seed(),
                               .batch_size = job.train().batch_size(),
                               .max_length = static_cast<int>(options.max_length)}),
      model_(CutBy(options, environment.tp), *environment.parameters),
      tables_(environment.tables),
      group_(environment.group) {}

std::unique_ptr<StepInput> TextTask::Prepare(int64_t step) const {
  auto input = std::make_unique<TextStep>();
  const int num_parts = job_.train().accumulate();
  std::vector<std::vector<uint64_t>> part_ids;
  for (int part = 0; part < num_parts; ++part) {
    const data::WindowBatch batch =
        sampler_.TrainBatch(step, group_->rank(), group_->size(), part, num_parts);
    input->global_samples = batch.global_samples;
    input->global_targets = input->global_tokens = batch.global_targets;
    input->flops += FlopsOf(batch, model_.options());
    input->parts.push_back(InputOf(batch, model_.options().max_length));
    if (tables_ != nullptr) part_ids.push_back(RowIdsOf(batch.inputs));
  }
  if (tables_ == nullptr) return input;
  if (model_.options().tied_embeddings) {  // the head reads every row
    input->ids = {AllRowIds(model_.options().vocabulary_size)};
    return input;
  }
  sparse::MergedIds merged =
      sparse::MergeIds(std::vector<absl::Span<const uint64_t>>(part_ids.begin(), part_ids.end()));
  input->ids = {std::move(merged.ids)};
  for (int part = 0; part < num_parts; ++part) input->parts[part].inputs = merged.places[part];
  return input;
}

Variable TextTask::LossSum(Context& context, const StepInput& input, int part,
                           absl::Span<const Variable> rows) const {
  return model_.LossSum(context, rows.empty() ? Variable() : rows[0],
                        static_cast<const TextStep&>(input).parts[part]);
}

void TextTask::WindowLosses(const data::BatchShare& block, const Variable& rows,
                            const EvaluationArgs& args, std::vector<double>& losses) const {
  const int64_t length = model_.options().max_length;
  const data::WindowBatch batch = sampler_.EvalBatch(block.begin, block.end);
  Context context({.stream = args.stream, .seed = job_.seed(), .training = false});
  const models::GptInput input = InputOf(batch, length).To(args.stream->device(), *args.stream);
  const Tensor tokens = model_.Losses(context, rows, input).ToHost(*args.stream);
  for (int64_t w = 0; w < batch.num_samples(); ++w) {
    double& loss = losses[block.begin + w];
    for (int64_t i = 0; i < length; ++i) loss += tokens.At(w * length + i);
    if (args.dump)
      args.dump(
          absl::StrCat(block.begin + w, "\t", length, "\t", loss / static_cast<double>(length)));
  }
}

absl::StatusOr<Evaluation> TextTask::Evaluate(EvaluationSplit split, const EvaluationArgs& args) {
  if (split == EvaluationSplit::TEST) return Evaluation();
  Variable rows;
  if (tables_ != nullptr) {
    ASSIGN_OR_RETURN(const Tensor values,
                     PullRows(*tables_, 0, AllRowIds(model_.options().vocabulary_size),
                              absl::Now() + args.timeout));
    rows = Variable::Constant(values);
  }
  std::vector<double> losses(static_cast<size_t>(sampler_.num_eval_windows()), 0);
  const int64_t block_windows =
      std::max<int64_t>(1, kEvaluationTokens / model_.options().max_length);
  ASSIGN_OR_RETURN(const bool whole,
                   ForEachBlock(sampler_.num_eval_windows(), block_windows, *group_, args,
                                [&](const data::BatchShare& block) {
                                  WindowLosses(block, rows, args, losses);
                                }));
  if (!whole) return Evaluation();
  RETURN_IF_ERROR(SumShares(*group_, args, "window losses", &losses));
  const double symbols =
      static_cast<double>(losses.size()) * static_cast<double>(model_.options().max_length);
  Evaluation evaluation;
  evaluation.metrics["loss"] = std::accumulate(losses.begin(), losses.end(), 0.0) / symbols;
  evaluation.selection = -evaluation.metrics["loss"];
  evaluation.decides = "loss";
  return evaluation;
}

std::optional<LargestProduct> TextTask::Bf16Product() const {
  const int64_t tokens = int64_t{job_.train().batch_size()} * model_.options().max_length /
                         group_->size() / job_.train().accumulate();
  return LargestProduct{tokens, model_.options().dim, model_.options().ffn_dim};
}

}  // namespace tandem::tasks
