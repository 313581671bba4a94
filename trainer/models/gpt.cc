#include "trainer/models/gpt.h"

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "trainer/models/stage_blocks.h"

namespace tandem::models {

namespace {

Tensor RotaryOf(const GptOptions& options, const ParameterSet& parameters) {
  return parameters.Place(ops::RotaryTable(options.max_length, options.dim / options.heads,
                                           options.rotary_base, parameters.dtype()));
}

nn::BlockOptions BlockOptionsOf(const GptOptions& options, const ParameterSet& parameters) {
  const auto linear = [&](bool bias, double stddev) {
    return nn::LinearOptions{.bias = bias, .init = options.init, .stddev = stddev};
  };
  // Each block adds to the residual stream twice. With this scale the stream's variance does not
  // grow with depth.
  const double residual_stddev =
      options.init_stddev / std::sqrt(2.0 * static_cast<double>(options.layers));
  return {.dim = options.dim,
          .heads = options.heads,
          .ffn_dim = options.ffn_dim,
          .kv_heads = options.kv_heads,
          .rotary = options.rotary_base > 0 ? RotaryOf(options, parameters) : Tensor(),
          .attention_scale = options.attention_scale,
          .gated = options.gated,
          .activation = options.activation,
          .dropout = options.dropout,
          .norm = options.norm,
          .qkv = linear(options.qkv_bias, options.init_stddev),
          .up = linear(options.linear_bias, options.init_stddev),
          .residual = linear(options.linear_bias, residual_stddev),
          .tp = options.tp};
}

IndexRange SymbolsOf(const GptOptions& options) {
  return nn::PartOf(options.vocabulary_size, options.tp);
}

// The part of an array whose dimension `dim` is the vocabulary.
ParameterPart PartOfVocabulary(const GptOptions& options, const Shape& shape, int dim) {
  return nn::CutPart(shape, dim, {SymbolsOf(options)}, options.tp);
}

Variable TokenParameter(const GptOptions& options, ParameterSet& parameters) {
  const bool is_tied = options.tied_embeddings && options.has_head,
             is_head = IsLast(options) && is_tied;
  if (options.token_rows_outside || !(IsFirst(options) || is_head)) return Variable();
  ParameterPart part = PartOfVocabulary(options, Shape{options.vocabulary_size, options.dim}, 0);
  part.record.tied_over_pp = is_tied && !(IsFirst(options) && IsLast(options));
  return parameters.Normal("embedding.tokens", part, options.embedding_stddev);
}

Variable PositionParameter(const GptOptions& options, ParameterSet& parameters) {
  if (options.rotary_base > 0 || !IsFirst(options)) return Variable();
  const Shape shape{options.max_length, options.dim};
  return parameters.Normal("embedding.positions", nn::StreamPart(shape, options.tp),
                           options.embedding_stddev);
}

std::vector<nn::PreNormBlock> Blocks(const GptOptions& options, ParameterSet& parameters) {
  std::vector<nn::PreNormBlock> blocks;
  const nn::BlockOptions block = BlockOptionsOf(options, parameters);
  const IndexRange here = BlocksOf(options);
  for (int64_t i = here.begin; i < here.end; ++i) {
    parameters.NextBlock();
    blocks.emplace_back(parameters, absl::StrCat("blocks.", i), block);
  }
  parameters.NextBlock();
  return blocks;
}

}  // namespace

Gpt::Gpt(const GptOptions& options, ParameterSet& parameters)
    : options_(options),
      symbols_(SymbolsOf(options)),
      tokens_(TokenParameter(options, parameters)),
      positions_(PositionParameter(options, parameters)),
      embedding_dropout_("embedding.dropout", options.dropout),
      blocks_(Blocks(options, parameters)) {
  if (!IsLast(options)) return;
  final_norm_.emplace(parameters, "final_norm", options.dim, options.norm, options.tp);
  if (options.tied_embeddings || !options.has_head) return;
  const Shape shape{options.dim, options.vocabulary_size};
  head_.emplace(
      parameters, "head", PartOfVocabulary(options, shape, 1),
      PartOfVocabulary(options, Shape{options.vocabulary_size}, 0),
      nn::LinearOptions{
          .bias = options.linear_bias, .init = options.init, .stddev = options.init_stddev});
}

const Variable& Gpt::TokenRows(const Variable& tokens) const {
  TANDEM_CHECK(tokens.defined() == options_.token_rows_outside)
      << "token rows from outside: " << tokens.defined()
      << ", expected: " << options_.token_rows_outside;
  return options_.token_rows_outside ? tokens : tokens_;
}

Variable Gpt::Embed(Context& context, const Variable& tokens, const Tensor& inputs,
                    const Tensor& positions) const {
  const Variable& table = TokenRows(tokens);
  const parallel::TensorGroup* const tp = options_.tp;
  Variable rows;
  if (tp == nullptr)
    rows = ops::GatherRows(context, table, inputs);
  else if (options_.token_rows_outside)
    rows = tp->Split(context, ops::GatherRows(context, table, inputs));
  else
    rows = tp->GatherRows(context, table, symbols_.begin, inputs);
  if (!positions_.defined()) return rows;
  const Tensor here = tp == nullptr ? positions : tp->NumbersHere(context, positions);
  return ops::Add(context, rows, ops::GatherRows(context, positions_, here));
}

Variable Gpt::StageRows(Context& context, const Variable& tokens, const Variable& before,
                        const GptInput& input) const {
  TANDEM_CHECK(before.defined() != IsFirst(options_)) << "rows of a stage before the first one";
  const nn::PackedRows rows = nn::CutRows(context, input.rows, options_.tp);
  ops::Residual x{before};
  if (IsFirst(options_)) {
    const Variable embedded = Embed(context, tokens, input.inputs, rows.positions);
    x.x = embedding_dropout_.Forward(context, embedded, rows);
  }
  for (const nn::PreNormBlock& block : blocks_) x = block.Forward(context, x, rows);
  return final_norm_ ? final_norm_->Forward(context, x).output : ops::Sum(context, x);
}

Shape Gpt::StageShape(const GptInput& input) const {
  const int64_t rows = input.rows.num_rows();
  return {options_.tp == nullptr ? rows : options_.tp->NumRowsHere(rows), options_.dim};
}

Variable Gpt::Logits(Context& context, const Variable& tokens, const Variable& hidden) const {
  TANDEM_CHECK(options_.has_head && options_.tp == nullptr);
  if (head_.has_value()) return head_->Forward(context, hidden);
  return ops::MatMulTransposed(context, hidden, HeadOf(context, tokens).weight);
}

parallel::CutHead Gpt::HeadOf(Context& context, const Variable& tokens) const {
  TANDEM_CHECK(options_.has_head);
  if (head_.has_value())
    return {head_->weight(), /*is_table=*/false, head_->bias(), symbols_.begin};
  const Variable& rows = TokenRows(tokens);
  if (options_.tp != nullptr && options_.token_rows_outside)
    return options_.tp->HeadOfRows(context, rows);
  TANDEM_CHECK_EQ(rows.shape()[0], symbols_.size());
  return {rows, /*is_table=*/true, Variable(), symbols_.begin};
}

Variable Gpt::LossSum(Context& context, const Variable& tokens, const Variable& hidden,
                      const Tensor& targets) const {
  const parallel::CutHead head = HeadOf(context, tokens);
  if (options_.tp != nullptr) return options_.tp->CrossEntropySum(context, hidden, head, targets);
  return ops::LinearCrossEntropySum(context, hidden, head.weight, head.is_table, head.bias,
                                    targets);
}

Tensor Gpt::Losses(Context& context, const Variable& tokens, const Variable& hidden,
                   const Tensor& targets) const {
  const parallel::CutHead head = HeadOf(context, tokens);
  if (options_.tp != nullptr) return options_.tp->CrossEntropies(context, hidden, head, targets);
  return ops::LinearCrossEntropyLosses(context, hidden, head.weight, head.is_table, head.bias,
                                       targets);
}

Variable Gpt::Extend(Context& context, const Variable& tokens, const Tensor& symbols,
                     std::vector<nn::KeyValueCache>& caches) const {
  TANDEM_CHECK_EQ(caches.size(), blocks_.size());
  TANDEM_CHECK_EQ(static_cast<int64_t>(blocks_.size()), options_.layers);
  const int64_t begin = caches.front().length();
  TANDEM_CHECK_LE(begin + symbols.dim(0), options_.max_length);
  const Tensor positions = Tensor::Empty(symbols.shape(), DType::I64);
  std::iota(positions.data<int64_t>(), positions.data<int64_t>() + symbols.dim(0), begin);
  ops::Residual x{Embed(context, tokens, symbols, positions)};
  for (size_t i = 0; i < blocks_.size(); ++i) x = blocks_[i].Extend(context, x, caches[i]);
  return final_norm_->Forward(context, x).output;
}

std::vector<nn::KeyValueCache> Gpt::MakeCaches() const {
  std::vector<nn::KeyValueCache> caches;
  for (const nn::PreNormBlock& block : blocks_)
    caches.push_back(block.MakeCache(options_.max_length));
  return caches;
}

}  // namespace tandem::models
