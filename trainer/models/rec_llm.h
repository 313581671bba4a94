// A recommender that is a language model: one Gpt decoder over streams of words and items
// (data/item_stream.h). An item's vector is its row, projected to the decoder's width, plus what a
// tower makes of its title's words. The vector is the item as an input, and the item as a
// candidate. Edges: items -> vectors, streams -> hidden states, hidden states -> two losses.
// Rows of items, words and symbols come from outside, as leaves, or are parameters of the caller.
// Thread rule: that of its parameters.
#pragma once

#include <optional>
#include <vector>

#include "trainer/models/gpt.h"

namespace tandem::models {

struct RecLlmOptions {
  int64_t vocabulary_size = 0;  // symbols of titles; 0: streams have items only
  int64_t max_length = 256, layers = 2, heads = 2, dim = 64, ffn_dim = 256;
  kernels::Activation activation = kernels::Activation::GELU;
  float dropout = 0;
  double norm_epsilon = 1e-5, init_stddev = 0.02;
  int64_t item_dim = 64;  // width of an item's row
  bool predicts_text = true;
  bool has_tower = false;  // titles' words are part of an item; their rows have width dim
  // A pipeline's stage builds these blocks alone (GptOptions). Items are with the first and the
  // last stage. Nothing: the whole model.
  std::optional<IndexRange> blocks = std::nullopt;
  // Cuts the decoder, and the candidates of the full softmax; null: the model is whole. Items are
  // whole on every rank.
  const parallel::TensorGroup* tp = nullptr;
};

// The items whose vectors a step needs, in the order of the vectors.
struct ItemSet {
  int64_t size = 0;
  // The items with a row, i64 [R], ascending. The others have none: their rows were dropped, or
  // never trained.
  Tensor with_row;
  Tensor word_offsets;  // i64 [size + 1]: words of item i are word_offsets[i] ..
  Tensor words;         // i64 [W], places in the word rows
  Tensor word_scale;    // f32 [size]: the root of the item's number of words; 0 for no words

  std::vector<Tensor*> Tensors() { return {&with_row, &word_offsets, &words, &word_scale}; }
};

// A packed batch of streams.
struct RecLlmInput {
  nn::PackedRows rows;
  // i64 [T]: a symbol's number, or the vocabulary's size + the place of an item in the item set.
  Tensor inputs;
  Tensor item_places, item_targets;  // i64 [I]: places among T, and next items in the item set
  Tensor text_places, text_targets;  // i64 [S]: places among T, and next symbols
  // SampledTargets, places in the item set; undefined for the full softmax.
  Tensor negatives = {}, correction = {};

  std::vector<Tensor*> Tensors() {
    std::vector<Tensor*> all{&rows.offsets, &rows.positions, &rows.row_index, &inputs,
                             &item_places,  &item_targets,   &text_places,    &text_targets};
    if (negatives.defined()) all.insert(all.end(), {&negatives, &correction});
    return all;
  }
};

class RecLlm {
 public:
  RecLlm(const RecLlmOptions& options, ParameterSet& parameters);

  const RecLlmOptions& options() const { return options_; }

  // The vectors [items.size, dim]. `rows` [R, item_dim] belong to items.with_row. `words` [n, dim]
  // are rows of hashed words, undefined without a tower.
  Variable ItemVectors(Context& context, const Variable& rows, const Variable& words,
                       const ItemSet& items) const;
  // The rows of the residual stream after the blocks here. `before`: those of the stage before,
  // undefined in the first stage, which alone reads the others. `symbols` [vocabulary_size, dim],
  // undefined without a vocabulary.
  Variable StageRows(Context& context, const Variable& symbols, const Variable& vectors,
                     const Variable& before, const RecLlmInput& input) const;
  // The shape of what StageRows takes and returns.
  Shape StageShape(const RecLlmInput& input) const {
    return decoder_.StageShape({.rows = input.rows, .inputs = input.inputs});
  }
  // Hidden states [T, dim] of the rows after the last block, equal on all ranks.
  Variable AllStates(Context& context, const Variable& stream, const RecLlmInput& input) const;
  // The same of a whole model.
  Variable Encode(Context& context, const Variable& symbols, const Variable& vectors,
                  const RecLlmInput& input) const {
    return AllStates(context, StageRows(context, symbols, vectors, Variable(), input), input);
  }
  // The summed cross entropies of the next items, over all items of the set or, with negatives,
  // over these and the target, and of the next symbols.
  Variable ItemLossSum(Context& context, const Variable& hidden, const Variable& vectors,
                       const RecLlmInput& input) const;
  Variable TextLossSum(Context& context, const Variable& hidden, const RecLlmInput& input) const;
  // The cross entropy of each next symbol, [S], for evaluation.
  Tensor TextLosses(Context& context, const Variable& hidden, const RecLlmInput& input) const;

 private:
  RecLlmOptions options_;
  std::optional<nn::Linear> projection_;             // with the first and the last stage
  std::optional<nn::Linear> tower_up_, tower_down_;  // the same; none without a tower
  Gpt decoder_;
};

}  // namespace tandem::models
