#include "trainer/models/sequence_rec.h"

#include "absl/strings/str_cat.h"
#include "trainer/models/stage_blocks.h"

namespace tandem::models {

namespace {

nn::BlockOptions BlockOptionsOf(const SequenceRecOptions& options) {
  const nn::LinearOptions linear{.stddev = options.init_stddev};
  return {.dim = options.dim,
          .heads = options.heads,
          .ffn_dim = options.ffn_dim,
          .activation = options.activation,
          .dropout = options.dropout,
          .norm = {.epsilon = options.norm_epsilon},
          .qkv = linear,
          .up = linear,
          .residual = linear,
          .tp = options.tp};
}

}  // namespace

SequenceRec::SequenceRec(const SequenceRecOptions& options, ParameterSet& parameters)
    : options_(options), embedding_dropout_("embedding.dropout", options.dropout) {
  if (IsFirst(options_)) {
    positions_ = parameters.Normal(
        "embedding.positions", nn::StreamPart(Shape{options.max_length, options.dim}, options.tp),
        options.init_stddev);
    embedding_norm_.emplace(parameters, "embedding.norm", options.dim,
                            nn::NormOptions{.epsilon = options.norm_epsilon}, options.tp);
  }
  const IndexRange here = BlocksOf(options);
  for (int64_t i = here.begin; i < here.end; ++i) {
    parameters.NextBlock();
    blocks_.emplace_back(parameters, absl::StrCat("blocks.", i), BlockOptionsOf(options));
  }
  parameters.NextBlock();
}

Variable SequenceRec::StageRows(Context& context, const Variable& items, const Variable& before,
                                const SequenceInput& input) const {
  TANDEM_CHECK(before.defined() != IsFirst(options_)) << "rows of a stage before the first one";
  const nn::PackedRows rows = nn::CutRows(context, input.rows, options_.tp);
  Variable x = before;
  if (IsFirst(options_)) {
    Variable item = ops::GatherRows(context, items, input.inputs);
    Tensor positions = rows.positions;
    if (options_.tp != nullptr) {
      item = options_.tp->Split(context, item);
      positions = options_.tp->NumbersHere(context, positions);
    }
    const Variable position = ops::GatherRows(context, positions_, positions);
    x = embedding_norm_->Forward(context, ops::Add(context, item, position));
    x = embedding_dropout_.Forward(context, x, rows);
  }
  for (const nn::PostNormBlock& block : blocks_) x = block.Forward(context, x, rows);
  return x;
}

Shape SequenceRec::StageShape(const SequenceInput& input) const {
  const int64_t rows = input.rows.num_rows();
  return {options_.tp == nullptr ? rows : options_.tp->NumRowsHere(rows), options_.dim};
}

Variable SequenceRec::AllStates(Context& context, const Variable& stream,
                                const SequenceInput& input) const {
  return options_.tp == nullptr ? stream
                                : options_.tp->Join(context, stream, input.rows.num_rows());
}

Variable SequenceRec::LossSum(Context& context, const Variable& items, const Variable& stream,
                              const SequenceInput& input) const {
  const parallel::TensorGroup* const tp = options_.tp;
  if (tp != nullptr && options_.loss == SequenceLossKind::FULL_SOFTMAX) {
    return tp->CrossEntropySum(context, tp->Enter(context, stream, input.rows.num_rows()),
                               tp->HeadOfRows(context, items), input.targets);
  }
  const Variable hidden = AllStates(context, stream, input);
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

Tensor SequenceRec::LastStates(Context& context, const Variable& stream,
                               const SequenceInput& input) const {
  return LastRows(context, AllStates(context, stream, input), input.rows);
}

}  // namespace tandem::models
