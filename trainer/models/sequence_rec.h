// Self-attentive sequential recommendation: SASRec (Kang and McAuley, ICDM 2018) with the post-norm
// blocks of S3-Rec (Zhou et al., CIKM 2020). Three layers with typed edges: embedding (item ids ->
// rows), blocks (rows -> rows), head (rows, items -> scores). Item rows come from outside, as a
// leaf; this class owns only the dense parts.
// Thread rule: that of its parameters.
#pragma once

#include <optional>
#include <vector>

#include "trainer/models/sequence_input.h"
#include "trainer/nn/blocks.h"
#include "trainer/parallel/tensor/tensor_group.h"

namespace tandem::models {

enum class SequenceLossKind { BCE, SAMPLED_SOFTMAX, FULL_SOFTMAX };

struct SequenceRecOptions {
  int64_t dim = 64, max_length = 50, layers = 2, heads = 2, ffn_dim = 256;
  kernels::Activation activation = kernels::Activation::GELU;
  float dropout = 0;
  double norm_epsilon = 1e-12, init_stddev = 0.02;
  SequenceLossKind loss = SequenceLossKind::BCE;
  // A pipeline's stage builds these blocks alone, and the embedding with the first one. Nothing:
  // the whole model.
  std::optional<IndexRange> blocks = std::nullopt;
  // Cuts blocks, and the items of the full softmax; null: the model is whole. Item rows are whole
  // on every rank.
  const parallel::TensorGroup* tp = nullptr;
};

class SequenceRec {
 public:
  SequenceRec(const SequenceRecOptions& options, ParameterSet& parameters);

  // In every function, `items` is [n, dim], and `stream` the rows of the residual stream after the
  // last block.
  //
  // The rows of the residual stream after the blocks here. `before`: those of the stage before,
  // undefined in the first stage, which alone reads `items`.
  Variable StageRows(Context& context, const Variable& items, const Variable& before,
                     const SequenceInput& input) const;
  // The shape of what StageRows takes and returns.
  Shape StageShape(const SequenceInput& input) const;
  // The sum over the batch's targets. Divide it once by the global count of targets.
  Variable LossSum(Context& context, const Variable& items, const Variable& stream,
                   const SequenceInput& input) const;
  // The state after each sample's last item, [samples, dim]. REQUIRES: no sample is empty.
  Tensor LastStates(Context& context, const Variable& stream, const SequenceInput& input) const;

  // The same of a whole model, and its hidden states [T, dim].
  Variable Encode(Context& context, const Variable& items, const SequenceInput& input) const {
    return AllStates(context, StageRows(context, items, Variable(), input), input);
  }
  Variable LossSum(Context& context, const Variable& items, const SequenceInput& input) const {
    return LossSum(context, items, StageRows(context, items, Variable(), input), input);
  }

 private:
  // [T, dim], equal on all tensor-parallel ranks.
  Variable AllStates(Context& context, const Variable& stream, const SequenceInput& input) const;

  SequenceRecOptions options_;
  Variable positions_;                      // [max_length, dim]; in the first stage
  std::optional<nn::Norm> embedding_norm_;  // in the first stage
  nn::Dropout embedding_dropout_;
  std::vector<nn::PostNormBlock> blocks_;
};

}  // namespace tandem::models
