// Baselines for models of text, from counts over the training part. A trained model must beat them.
// Thread rule: pure functions and values.
#pragma once

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "trainer/data/text/text.h"

namespace tandem::data {

// The mean nats per symbol of the validation part. The prediction of a symbol is its share of the
// training part.
double UnigramLoss(const Text& text);

// The mean nats per symbol of the validation part, without its first symbol, by BigramCounts of the
// training part.
double BigramLoss(const Text& text);

// How often a symbol followed another. One is added to the count of every symbol of the vocabulary
// (Laplace).
class BigramCounts {
 public:
  explicit BigramCounts(int64_t vocabulary_size) : vocabulary_size_(vocabulary_size) {}

  void Add(int64_t first, int64_t second, int64_t count = 1);
  // The nats of `second` after `first`.
  double Loss(int64_t first, int64_t second) const;

 private:
  int64_t Key(int64_t first, int64_t second) const { return first * vocabulary_size_ + second; }

  const int64_t vocabulary_size_;
  absl::flat_hash_map<int64_t, int64_t> firsts_, pairs_;
};

}  // namespace tandem::data
