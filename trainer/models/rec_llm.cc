#include "trainer/models/rec_llm.h"

#include "trainer/models/sequence_input.h"
#include "trainer/models/stage_blocks.h"

namespace tandem::models {

namespace {

// A uniform start keeps the size of what goes in, so that rows and words count from the first step.
constexpr nn::LinearOptions kProjection{.bias = false, .init = nn::Init::UNIFORM_FAN_IN};
constexpr nn::LinearOptions kTowerLayer{.init = nn::Init::UNIFORM_FAN_IN};

GptOptions DecoderOf(const RecLlmOptions& options) {
  GptOptions decoder;
  decoder.vocabulary_size = options.vocabulary_size;
  decoder.max_length = options.max_length;
  decoder.layers = options.layers;
  decoder.heads = options.heads;
  decoder.dim = options.dim;
  decoder.ffn_dim = options.ffn_dim;
  decoder.activation = options.activation;
  decoder.dropout = options.dropout;
  decoder.norm.epsilon = options.norm_epsilon;
  decoder.init_stddev = decoder.embedding_stddev = options.init_stddev;
  decoder.token_rows_outside = true;
  decoder.has_head = options.vocabulary_size > 0 && options.predicts_text;
  decoder.blocks = options.blocks;
  decoder.tp = options.tp;
  return decoder;
}

// A layer of the items, which every rank of a stage has whole and computes alike.
nn::Linear ItemLayer(ParameterSet& parameters, const std::string& name, int64_t in,
                     const nn::LinearOptions& linear, const RecLlmOptions& options) {
  const auto part = [&](const Shape& shape) {
    ParameterPart whole = nn::EqualPart(shape, options.tp);
    whole.record.tied_over_pp = !(IsFirst(options) && IsLast(options));
    return whole;
  };
  return nn::Linear(parameters, name, part(Shape{in, options.dim}), part(Shape{options.dim}),
                    linear);
}

}  // namespace

RecLlm::RecLlm(const RecLlmOptions& options, ParameterSet& parameters)
    : options_(options),
      projection_(IsFirst(options) || IsLast(options)
                      ? std::optional(ItemLayer(parameters, "items.projection", options.item_dim,
                                                kProjection, options))
                      : std::nullopt),
      decoder_(DecoderOf(options), parameters) {
  if (!options.has_tower || !projection_) return;
  tower_up_.emplace(ItemLayer(parameters, "tower.up", options.dim, kTowerLayer, options));
  tower_down_.emplace(ItemLayer(parameters, "tower.down", options.dim, kTowerLayer, options));
}

Variable RecLlm::ItemVectors(Context& context, const Variable& rows, const Variable& words,
                             const ItemSet& items) const {
  TANDEM_CHECK(words.defined() == options_.has_tower);
  Variable titles;
  if (options_.has_tower) {
    const Variable mean =
        ops::SegmentMean(context, ops::GatherRows(context, words, items.words), items.word_offsets);
    const Variable sum = ops::ScaleRows(context, mean, items.word_scale);
    const Variable hidden = tower_up_->ForwardActivated(context, sum, options_.activation);
    titles = ops::Add(context, sum, tower_down_->Forward(context, hidden));
  } else {
    const Tensor none = context.Empty(Shape{items.size, options_.dim}, rows.dtype());
    kernels::Fill(none.view(), 0, context.stream());
    titles = Variable::Constant(none);
  }
  return ops::AddRowsAt(context, titles, projection_->Forward(context, rows), items.with_row);
}

Variable RecLlm::StageRows(Context& context, const Variable& symbols, const Variable& vectors,
                           const Variable& before, const RecLlmInput& input) const {
  Variable rows;
  if (IsFirst(options_)) {
    TANDEM_CHECK(symbols.defined() == (options_.vocabulary_size > 0));
    rows = symbols.defined() ? ops::ConcatRows(context, symbols, vectors) : vectors;
  }
  return decoder_.StageRows(context, rows, before, {.rows = input.rows, .inputs = input.inputs});
}

Variable RecLlm::AllStates(Context& context, const Variable& stream,
                           const RecLlmInput& input) const {
  return options_.tp == nullptr ? stream
                                : options_.tp->Join(context, stream, input.rows.num_rows());
}

Variable RecLlm::ItemLossSum(Context& context, const Variable& hidden, const Variable& vectors,
                             const RecLlmInput& input) const {
  const Variable states = ops::GatherRows(context, hidden, input.item_places);
  if (input.negatives.defined()) {
    return SampledSoftmaxSum(context, states, vectors,
                             {input.item_targets, input.negatives, input.correction});
  }
  if (options_.tp != nullptr) {
    return options_.tp->CrossEntropySum(context, options_.tp->EnterEqual(context, states),
                                        options_.tp->HeadOfRows(context, vectors),
                                        input.item_targets);
  }
  return ops::LinearCrossEntropySum(context, states, vectors, /*weight_is_table=*/true, Variable(),
                                    input.item_targets);
}

Variable RecLlm::TextLossSum(Context& context, const Variable& hidden,
                             const RecLlmInput& input) const {
  const Variable states = ops::GatherRows(context, hidden, input.text_places);
  return decoder_.LossSum(
      context, Variable(),
      options_.tp == nullptr ? states : options_.tp->EnterEqual(context, states),
      input.text_targets);
}

Tensor RecLlm::TextLosses(Context& context, const Variable& hidden,
                          const RecLlmInput& input) const {
  return decoder_.Losses(context, Variable(), ops::GatherRows(context, hidden, input.text_places),
                         input.text_targets);
}

}  // namespace tandem::models
