#include "trainer/models/sequence_input.h"

namespace tandem::models {

SequenceInput SequenceInput::To(Device device, Stream& stream) const {
  const auto moved = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.To(device, stream) : tensor;
  };
  return {rows.To(device, stream), moved(inputs), moved(targets), moved(negatives)};
}

Variable SampledSoftmaxSum(Context& context, const Variable& states, const Variable& items,
                           const SampledTargets& sampled) {
  const int64_t tokens = states.shape()[0];
  const Variable positive =
      ops::RowDot(context, states, ops::GatherRows(context, items, sampled.targets));
  Variable negatives = ops::GatherRows(context, items, sampled.negatives), columns = states;
  if (sampled.correction.defined()) {  // one more column: 1 times the correction
    const Tensor ones = context.Empty(Shape{tokens, 1}, states.dtype());
    kernels::Fill(ones.view(), 1, context.stream());
    columns = ops::Concat(context, {states, Variable::Constant(ones)});
    negatives = ops::Concat(context, {negatives, Variable::Constant(sampled.correction)});
  }
  // A negative that equals the target must not push the target's score down: -1e30 removes it from
  // the softmax.
  const Variable scores =
      ops::AddWhereEqual(context, ops::MatMulTransposed(context, columns, negatives),
                         sampled.targets, sampled.negatives, -1e30);
  const Variable logits =
      ops::Concat(context, {ops::Reshape(context, positive, Shape{tokens, 1}), scores});
  const Tensor first = context.Empty(Shape{tokens}, DType::I64);
  kernels::Fill(first.view(), 0, context.stream());
  return ops::CrossEntropySum(context, logits, first);
}

Tensor LastRows(Context& context, const Variable& rows, const nn::PackedRows& places) {
  const int64_t samples = places.offsets.dim(0) - 1;
  Stream& stream = context.stream();
  const Tensor offsets = places.offsets.ToHost(stream),
               last = Tensor::Empty(Shape{samples}, DType::I64);
  for (int64_t s = 0; s < samples; ++s)
    last.data<int64_t>()[s] = offsets.data<int64_t>()[s + 1] - 1;
  return ops::GatherRows(context, rows, last.To(stream.device(), stream)).value();
}

}  // namespace tandem::models
