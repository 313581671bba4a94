#include "trainer/models/sequence_rec.h"

#include "absl/strings/str_cat.h"

namespace tandem::models {

namespace {

nn::BlockOptions BlockOptionsOf(const SequenceRecOptions& options) {
  const nn::LinearOptions linear{.stddev = options.init_stddev};
  return {.dim = options.dim,
          .heads = options.heads,
          .ffn_dim = options.ffn_dim,
          .activation = options.activation,
          .dropout = options.dropout,
          .norm_epsilon = options.norm_epsilon,
          .qkv = linear,
          .up = linear,
          .residual = linear};
}

}  // namespace

SequenceRec::SequenceRec(const SequenceRecOptions& options, ParameterSet& parameters)
    : options_(options),
      positions_(parameters.Normal("embedding.positions", Shape{options.max_length, options.dim},
                                   options.init_stddev)),
      embedding_norm_(parameters, "embedding.norm", options.dim, options.norm_epsilon),
      embedding_dropout_("embedding.dropout", options.dropout) {
  for (int64_t i = 0; i < options.layers; ++i) {
    blocks_.emplace_back(parameters, absl::StrCat("blocks.", i), BlockOptionsOf(options));
  }
}

Variable SequenceRec::Encode(Context& context, const Variable& items,
                             const SequenceInput& input) const {
  const Variable item = ops::GatherRows(context, items, input.inputs);
  const Variable position = ops::GatherRows(context, positions_, input.rows.positions);
  Variable x = embedding_norm_.Forward(context, ops::Add(context, item, position));
  x = embedding_dropout_.Forward(context, x, input.rows);
  for (const nn::PostNormBlock& block : blocks_) x = block.Forward(context, x, input.rows);
  return x;
}

Variable SequenceRec::LossSum(Context& context, const Variable& items,
                              const SequenceInput& input) const {
  const Variable hidden = Encode(context, items, input);
  switch (options_.loss) {
    case SequenceLossKind::BCE: {
      const Variable positive =
          ops::RowDot(context, hidden, ops::GatherRows(context, items, input.targets));
      const Variable negative =
          ops::RowDot(context, hidden, ops::GatherRows(context, items, input.negatives));
      return ops::BinaryCrossEntropySum(context, positive, negative);
    }
    case SequenceLossKind::SAMPLED_SOFTMAX:
      return SampledSoftmaxSum(context, hidden, items, {input.targets, input.negatives});
    case SequenceLossKind::FULL_SOFTMAX:
      return ops::LinearCrossEntropySum(context, hidden, items, /*weight_is_table=*/true,
                                        Variable(), input.targets);
  }
  return Variable();
}

Tensor SequenceRec::LastStates(Context& context, const Variable& items,
                               const SequenceInput& input) const {
  return LastRows(context, Encode(context, items, input), input.rows);
}

}  // namespace tandem::models
