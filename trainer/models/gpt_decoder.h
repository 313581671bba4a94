// Text generation: what a Gpt expects after a growing run of symbols. Keys and values of what was fed are kept, so a symbol
// costs one row through the blocks. Positions are learned, so a full context cannot simply drop its oldest symbol: it is
// begun anew with the newest half.
// Thread rule: one thread per decoder.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/models/gpt.h"

namespace tandem::models {

class GptDecoder {
 public:
  // `tokens`: the whole vocabulary's rows in order if they live outside the model, else undefined. All outlive the decoder.
  GptDecoder(const Gpt* gpt, Variable tokens, Stream* stream);

  // Feeds the symbols that come next (a prompt, then one at a time) and returns the logits [V] of the symbol after them. Where
  // they no longer fit into max_length, the context becomes the newest max_length / 2 symbols, or as many more of those fed
  // now as fit. REQUIRES: not empty.
  Tensor Feed(absl::Span<const int64_t> symbols);

  // What the next logits are computed from, oldest first.
  const std::vector<int64_t>& context() const { return context_; }

 private:
  const Gpt* gpt_;
  const Variable tokens_;
  Stream* stream_;
  std::vector<int64_t> context_;
  std::vector<nn::KeyValueCache> caches_;  // hold context_
};

}  // namespace tandem::models
