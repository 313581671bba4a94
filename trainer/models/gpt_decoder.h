// Text generation: the logits of a Gpt for a growing run of symbols. Keys and values of past
// symbols are cached, so a symbol costs one row through the blocks. Positions are learned, so a
// full context cannot simply drop its oldest symbol. A full context starts again with its newest
// half.
// Thread rule: one thread per decoder.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/models/gpt.h"

namespace tandem::models {

class GptDecoder {
 public:
  // `tokens` holds the rows of the whole vocabulary in order if they live outside the model, else
  // it is undefined.
  // REQUIRES: all arguments outlive the decoder.
  GptDecoder(const Gpt* gpt, Variable tokens, Stream* stream);

  // Feeds the next symbols (a prompt, then one at a time) and returns the logits [V] of the symbol
  // after them. If they no longer fit into max_length, the context becomes the newest max_length /
  // 2 symbols. If more symbols are fed at once, the context keeps as many of them as fit.
  // REQUIRES: `symbols` is not empty.
  Tensor Feed(absl::Span<const int64_t> symbols);

  // The symbols that the next logits depend on, oldest first.
  const std::vector<int64_t>& context() const { return context_; }

 private:
  const Gpt* gpt_;
  const Variable tokens_;
  Stream* stream_;
  std::vector<int64_t> context_;
  std::vector<nn::KeyValueCache> caches_;  // hold context_
};

}  // namespace tandem::models
