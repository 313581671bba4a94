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

SequenceInput SequenceInput::To(Device device, Stream& stream) const {
  const auto moved = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.To(device, stream) : tensor;
  };
  return {rows.To(device, stream), moved(inputs), moved(targets), moved(negatives)};
}

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

Variable SequenceRec::SampledSoftmax(Context& context, const Variable& hidden,
                                     const Variable& items, const SequenceInput& input) const {
  const int64_t tokens = hidden.shape()[0];
  const Variable positive =
      ops::RowDot(context, hidden, ops::GatherRows(context, items, input.targets));
  const Variable negative_rows = ops::GatherRows(context, items, input.negatives);
  // A negative that equals the target must not push the target's score down: -1e30 removes it from
  // the softmax.
  const Variable scores =
      ops::AddWhereEqual(context, ops::MatMulTransposed(context, hidden, negative_rows),
                         input.targets, input.negatives, -1e30);
  const Variable logits =
      ops::Concat(context, {ops::Reshape(context, positive, Shape{tokens, 1}), scores});
  const Tensor first = context.Empty(Shape{tokens}, DType::I64);
  kernels::Fill(first.view(), 0, context.stream());
  return ops::CrossEntropySum(context, logits, first);
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
      return SampledSoftmax(context, hidden, items, input);
    case SequenceLossKind::FULL_SOFTMAX:
      return ops::LinearCrossEntropySum(context, hidden, items, /*weight_is_table=*/true,
                                        Variable(), input.targets);
  }
  return Variable();
}

Tensor SequenceRec::LastStates(Context& context, const Variable& items,
                               const SequenceInput& input) const {
  const Variable hidden = Encode(context, items, input);
  const int64_t samples = input.rows.offsets.dim(0) - 1;
  Stream& stream = context.stream();
  const Tensor offsets = input.rows.offsets.ToHost(stream),
               last = Tensor::Empty(Shape{samples}, DType::I64);
  for (int64_t s = 0; s < samples; ++s)
    last.data<int64_t>()[s] = offsets.data<int64_t>()[s + 1] - 1;
  return ops::GatherRows(context, hidden, last.To(stream.device(), stream)).value();
}

}  // namespace tandem::models
