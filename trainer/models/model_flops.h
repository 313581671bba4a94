// The number of floating point operations in the matrix products of a training step. A model's
// share of a machine's peak (MFU) is computed from it, as in PaLM (Chowdhery et al. 2022, appendix
// B). Unlike PaLM, only visible pairs of a query and a key count. Recomputation does not count.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::models {

// Transformer blocks over `tokens` rows, each with projections of queries and outputs [dim, dim],
// of keys and values [dim, kv_dim], and a feed-forward of ffn_matrices products with ffn_dim.
// `pairs` counts pairs of a query and a key that it attends to, summed over the samples.
struct BlocksWork {
  int64_t layers = 0, dim = 0, ffn_dim = 0;
  double tokens = 0, pairs = 0;
  int64_t kv_dim = dim, ffn_matrices = 2;
};

// The operations of the product of a [rows, in] matrix and a weight [in, out], and of both
// gradients.
constexpr double ProductFlops(double rows, int64_t in, int64_t out) {
  return 6.0 * rows * static_cast<double>(in) * static_cast<double>(out);
}

constexpr double BlocksFlops(const BlocksWork& work) {
  const double products =
      2 * ProductFlops(work.tokens, work.dim, work.dim + work.kv_dim) +
      static_cast<double>(work.ffn_matrices) * ProductFlops(work.tokens, work.dim, work.ffn_dim);
  // Scores and weighted values, over all heads.
  const double attention = 2 * 6.0 * work.pairs * static_cast<double>(work.dim);
  return static_cast<double>(work.layers) * (products + attention);
}

// The pairs of causal attention over one sample.
constexpr double CausalPairs(int64_t length) {
  return 0.5 * static_cast<double>(length) * static_cast<double>(length + 1);
}
// The mean of a sample's rows.
constexpr double MeanCausalPairs(int64_t length) { return 0.5 * static_cast<double>(length + 1); }
// Summed over packed samples: sample s has offsets[s + 1] - offsets[s] rows.
inline double CausalPairs(const std::vector<int64_t>& offsets) {
  double pairs = 0;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) pairs += CausalPairs(offsets[s + 1] - offsets[s]);
  return pairs;
}

}  // namespace tandem::models
