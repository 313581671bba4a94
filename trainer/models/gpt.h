// A decoder-only Transformer language model: token embeddings, pre-norm blocks, a final norm and a
// head over the vocabulary. With learned positions, layer norms and one FFN layer it is a GPT
// (Radford et al. 2019), with rotary positions, RMS norms and gated FFNs a Llama (Touvron et al.
// 2023). Three layers with typed edges: embedding (symbols -> rows), blocks (rows -> rows), head
// (rows -> logits). Token rows are a parameter of the model or come from outside, as a leaf.
//
// Thread rule: that of its parameters.
#pragma once

#include <optional>
#include <vector>

#include "trainer/nn/blocks.h"
#include "trainer/parallel/tensor/tensor_group.h"

namespace tandem::models {

struct GptOptions {
  int64_t vocabulary_size = 0;
  int64_t max_length = 256, layers = 4, heads = 4, dim = 128, ffn_dim = 512;
  kernels::Activation activation = kernels::Activation::GELU;
  // On embeddings, attention probabilities, and the outputs of attention and FFN.
  float dropout = 0;
  nn::NormOptions norm = {.epsilon = 1e-5, .bias = false};
  int64_t kv_heads = 0;    // nn::BlockOptions
  bool gated = false;      // nn::BlockOptions
  double rotary_base = 0;  // of ops::RotaryTable; 0: positions are learned
  bool qkv_bias = false;
  bool linear_bias = false;  // for all other linear layers, including an untied head
  bool tied_embeddings = false;
  double attention_scale = 0;  // 0: 1 / sqrt(dim / heads)
  // NORMAL: N(0, init_stddev); for the blocks' output projections, stddev is divided by sqrt(2
  // layers).
  nn::Init init = nn::Init::NORMAL;
  double init_stddev = 0.02, embedding_stddev = 0.02;
  bool token_rows_outside = false;
  bool has_head = true;  // false: the model ends with its hidden states
  // A pipeline's stage builds these blocks alone, the embedding with the first block, final norm
  // and head with the last one. A tied table is with both, and its record says so. Nothing: the
  // whole model.
  std::optional<IndexRange> blocks = std::nullopt;
  // Cuts blocks, and the vocabulary of embedding and head; null: the model is whole. A cut model
  // gives no logits. Token rows from outside are whole on every rank.
  const parallel::TensorGroup* tp = nullptr;
};

// A packed batch. Positions count from 0 in each sample.
struct GptInput {
  nn::PackedRows rows;
  // Symbols i64 [T]; with token_rows_outside: places in the token rows given beside the input.
  Tensor inputs;
  Tensor targets = {};  // i64 [T] symbols; for losses

  GptInput To(Device device, Stream& stream) const {
    return {rows.To(device, stream), inputs.To(device, stream), targets.To(device, stream)};
  }
};

// In every function, `tokens` are the token rows from outside; undefined without
// token_rows_outside. They may be any rows [n, dim] that the inputs point into. With tied
// embeddings they are also the head, so they must be the whole vocabulary in order.
class Gpt {
 public:
  Gpt(const GptOptions& options, ParameterSet& parameters);

  const GptOptions& options() const { return options_; }

  // Hidden states after the final norm: rows of the residual stream, all [T, dim] of a whole model.
  // REQUIRES: all blocks are here.
  Variable Stream(Context& context, const Variable& tokens, const GptInput& input) const {
    return StageRows(context, tokens, Variable(), input);
  }
  // The part of Stream that is here. `before`: the rows of the stage before, undefined in the first
  // stage. Returns the rows of the residual stream that the next stage takes.
  Variable StageRows(Context& context, const Variable& tokens, const Variable& before,
                     const GptInput& input) const;
  // The shape of what StageRows takes and returns.
  Shape StageShape(const GptInput& input) const;
  // All hidden states [T, dim] of the stream of the last block, which have entered the head
  // (TensorParallel).
  Variable Enter(Context& context, const Variable& stream, const GptInput& input) const {
    return nn::EnterCut(context, stream, input.rows, options_.tp);
  }
  Variable Encode(Context& context, const Variable& tokens, const GptInput& input) const {
    return Enter(context, Stream(context, tokens, input), input);
  }
  // Logits [R, V] of the symbols that follow hidden states [R, dim].
  Variable Logits(Context& context, const Variable& tokens, const Variable& hidden) const;
  // The summed cross entropy, in nats, of the symbols i64 [R] that follow hidden states [R, dim].
  // Divide the sum once by the global count of targets.
  Variable LossSum(Context& context, const Variable& tokens, const Variable& hidden,
                   const Tensor& targets) const;
  Variable LossSum(Context& context, const Variable& tokens, const GptInput& input) const {
    return LossSum(context, tokens, Encode(context, tokens, input), input.targets);
  }
  // The cross entropy of each target, [R], for evaluation.
  Tensor Losses(Context& context, const Variable& tokens, const Variable& hidden,
                const Tensor& targets) const;
  Tensor Losses(Context& context, const Variable& tokens, const GptInput& input) const {
    return Losses(context, tokens, Encode(context, tokens, input), input.targets);
  }

  // Inference for one sequence. Takes symbols i64 [n] that follow the cached ones, appends them to
  // the caches, and returns their hidden states [n, dim].
  // REQUIRES: MakeCaches made the caches; at most max_length symbols in all; the context is not
  // training; rows from outside are the whole vocabulary in order.
  Variable Extend(Context& context, const Variable& tokens, const Tensor& symbols,
                  std::vector<nn::KeyValueCache>& caches) const;
  std::vector<nn::KeyValueCache> MakeCaches() const;  // one for each block, empty

 private:
  // The rows that enter the blocks here, before dropout.
  Variable Embed(Context& context, const Variable& tokens, const Tensor& inputs,
                 const Tensor& positions) const;
  const Variable& TokenRows(const Variable& tokens) const;
  // The last layer: turns hidden states into the logits of the classes here.
  parallel::CutHead HeadOf(Context& context, const Variable& tokens) const;

  GptOptions options_;
  IndexRange symbols_;  // those of the vocabulary that this rank has
  Variable tokens_;  // [symbols_, dim]; undefined: rows come from outside, or are not needed here
  Variable positions_;  // [max_length, dim]; undefined: rotary, or not needed here
  nn::Dropout embedding_dropout_;
  std::vector<nn::PreNormBlock> blocks_;
  std::optional<nn::Norm> final_norm_;  // with the last block
  std::optional<nn::Linear> head_;      // none: tied embeddings
};

}  // namespace tandem::models
