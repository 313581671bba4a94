// How many floating point operations the products of a training step need: what a model's share of a machine's peak (MFU) is counted
// from, as in PaLM (Chowdhery et al. 2022, appendix B), but with the pairs of a query and a key that are in sight only. Recomputation
// does not count. Pure functions.
#pragma once

#include <cstdint>

namespace tandem::models {

// Transformer blocks over `tokens` rows: four projections [dim, dim] and a feed-forward of ffn_dim each. `pairs`: of a query and a
// key it attends to, summed over the samples.
struct BlocksWork {
  int64_t layers = 0, dim = 0, ffn_dim = 0;
  double tokens = 0, pairs = 0;
};

// Of a [rows, in] matrix and a weight [in, out]: the product, and the gradients of both.
constexpr double ProductFlops(double rows, int64_t in, int64_t out) {
  return 6.0 * rows * static_cast<double>(in) * static_cast<double>(out);
}

constexpr double BlocksFlops(const BlocksWork& work) {
  const double products = 4 * ProductFlops(work.tokens, work.dim, work.dim) + 2 * ProductFlops(work.tokens, work.dim, work.ffn_dim);
  // Scores and mixed values, of all heads together.
  const double attention = 2 * 6.0 * work.pairs * static_cast<double>(work.dim);
  return static_cast<double>(work.layers) * (products + attention);
}

// Of causal attention over a sample.
constexpr double CausalPairs(int64_t length) { return 0.5 * static_cast<double>(length) * static_cast<double>(length + 1); }

}  // namespace tandem::models
