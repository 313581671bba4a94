// A decoder-only Transformer language model (Radford et al. 2019): token and learned position embeddings, pre-norm blocks,
// a final norm and a head over the vocabulary. Three layers with typed edges: embedding (symbols -> rows), blocks
// (rows -> rows), head (rows -> logits). Token rows are a parameter of the model or come from outside, as a leaf.
// Thread rule: as its parameters.
#pragma once

#include <optional>
#include <vector>

#include "trainer/nn/layers.h"

namespace tandem::models {

struct GptOptions {
  int64_t vocabulary_size = 0;
  int64_t max_length = 256, layers = 4, heads = 4, dim = 128, ffn_dim = 512;
  kernels::Activation activation = kernels::Activation::GELU;
  float dropout = 0;  // of embeddings, attention probabilities, and the attention's and the FFN's output
  double norm_epsilon = 1e-5;
  bool norm_bias = false;
  bool qkv_bias = false;
  bool linear_bias = false;  // of all other linear layers, an untied head included
  bool tied_embeddings = false;
  double attention_scale = 0;  // 0: 1 / sqrt(dim / heads)
  // NORMAL: N(0, init_stddev), the blocks' output projections over sqrt(2 layers).
  nn::Init init = nn::Init::NORMAL;
  double init_stddev = 0.02, embedding_stddev = 0.02;
  bool token_rows_outside = false;
};

// A packed batch. Positions count from 0 in each sample.
struct GptInput {
  nn::PackedRows rows;
  Tensor inputs;   // i64 [T] symbols; with token_rows_outside: places in the rows given beside it
  Tensor targets;  // i64 [T] symbols

  GptInput To(Device device, Stream& stream) const {
    return {rows.To(device, stream), inputs.To(device, stream), targets.To(device, stream)};
  }
};

// Everywhere, `tokens` are the rows from outside and undefined without token_rows_outside. They may be any rows [n, dim] that
// the inputs point into; with tied embeddings they are the head too, so the whole vocabulary in order.
class Gpt {
 public:
  Gpt(const GptOptions& options, ParameterSet& parameters);

  const GptOptions& options() const { return options_; }

  // Hidden states after the final norm, [T, dim].
  Variable Encode(Context& context, const Variable& tokens, const GptInput& input) const;
  // Logits [R, V] of what follows hidden states [R, dim].
  Variable Logits(Context& context, const Variable& tokens, const Variable& hidden) const;
  // The summed cross entropy, in nats; divide once by the global count of targets.
  Variable LossSum(Context& context, const Variable& tokens, const GptInput& input) const;
  // The cross entropy of each target, [T]; for evaluation.
  Tensor Losses(Context& context, const Variable& tokens, const GptInput& input) const;

  // Inference, one sequence: hidden states [n, dim] of symbols i64 [n] that follow those in the caches, which take them up.
  // REQUIRES: caches made by MakeCaches, at most max_length symbols in all, the context is not training; rows from outside
  // are the whole vocabulary in order.
  Variable Extend(Context& context, const Variable& tokens, const Tensor& symbols,
                  std::vector<nn::KeyValueCache>& caches) const;
  std::vector<nn::KeyValueCache> MakeCaches() const;  // one for each block, empty

 private:
  // Rows [n, dim] that enter the blocks, before dropout.
  Variable Embed(Context& context, const Variable& tokens, const Tensor& inputs, const Tensor& positions) const;
  const Variable& TokenRows(const Variable& tokens) const;
  // What turns hidden states into logits.
  struct Head {
    Variable weight;  // [dim, V], or [V, dim] if it is the token table
    bool is_table;
    Variable bias;  // undefined: none
  };
  Head HeadOf(const Variable& tokens) const;

  GptOptions options_;
  Variable tokens_;     // [V, dim]; undefined: rows come from outside
  Variable positions_;  // [max_length, dim]
  nn::Dropout embedding_dropout_;
  std::vector<nn::PreNormBlock> blocks_;
  nn::LayerNorm final_norm_;
  std::optional<nn::Linear> head_;  // none: tied embeddings
};

}  // namespace tandem::models
