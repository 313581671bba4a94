// f32 products in the tiles of AMX, which multiply bf16: an f32 is, to the last bit, the sum of three bf16 (its upper bits, what they leave,
// what those leave), and of the nine products of pieces the six largest carry the f32 product: what is left out is below 2^-24 of it.
// AMX adds up the terms of 32 depths before they meet the sum so far, so the error is below that of a chain of multiply-adds, at one
// and a half times oneDNN's speed. (G. Henry, P. Tang, A. Heinecke: Leveraging the bfloat16 Artificial Intelligence Datatype For
// Higher-Precision Computations, 2019.)
//
// Numbers and products below 2^-100 lose last bits, below 2^-126 they are zero; infinities, numbers from 3.39e38 on and what overflows become
// NaN or infinite. An element of c is a function of its row of a and its column of b alone. Thread rule: pure functions on the caller's
// memory and, where it is said, scratch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/matmul/matmul_pack.h"
#include "kernels/cpu/vector/parallel.h"

namespace tandem::kernels {

// Whether the calling thread should multiply f32 so: with AMX, and where a product is wide and deep enough to pay for the pieces. A function
// of the whole product's columns and depths, never of its rows, whose number must not show in their bits.
bool UsesSplitProducts(int64_t n, int64_t k);

// Rows of a, columns of b and depths come in groups of this; what is missing is zero.
inline constexpr int64_t kSplitUnit = 32;
inline constexpr int64_t kSplitPieces = 3;

// Calls body(first, count) for the depths of each SplitProduct of a Gemm without a transposed: both of its cuts take sums in these steps, so
// that few rows have the bits of many.
inline constexpr int64_t kSplitDepth = 1024;
template <class Body>
void ForSplitDepths(int64_t k, const Body& body) {
  for (int64_t d = 0; d < k; d += kSplitDepth) body(d, std::min(kSplitDepth, k - d));
}

// Elements of an operand in pieces: `count` rows of a or columns of b.
constexpr int64_t SplitSize(int64_t count, int64_t depth) {
  return RoundUp(count, kSplitUnit) * RoundUp(depth, kSplitUnit) * kSplitPieces;
}

// The operand's place in a product decides how a tile holds its pairs of depths: as words of a row (a), or as rows of words (b).
enum class SplitSide { A, B };

// Pieces of columns [first, first + count) of x [k, n], where a's rows count as columns. A group of 32 columns and 32 depths is
// [piece][half of the columns][tile of 1 KiB]; groups lie [columns][depth]. Depths from x.k to `depth` are zero.
// REQUIRES: first + count <= x.n, x.k <= depth.
void SplitOperand(SplitSide side, const StoredMatrix<float>& x, int64_t first, int64_t count, int64_t depth, BFloat16* to);

// Where a product goes: c [m, n], rows c_row elements apart; bias [n] may be null.
struct SplitTarget {
  float* c;
  int64_t c_row;
  const float* bias = nullptr;
  bool accumulate = false;
};

// c = a b, plus the bias and the old c if asked: m rows, n columns and `depth` depths of operands in pieces. Groups of 32 columns of b lie
// b_step elements apart: SplitSize(32, depth), or more where b has more depths.
void SplitProduct(int64_t m, int64_t n, int64_t depth, const BFloat16* a, const BFloat16* b, int64_t b_step, const SplitTarget& target);

// The same of all of b as it is stored; its pieces are made in the scratch LIBRARY, so many columns at a time: of 512 depths they stay in the
// second-level cache beside a's.
inline constexpr int64_t kSplitBlockColumns = 128;
void SplitProduct(int64_t m, const BFloat16* a, const StoredMatrix<float>& b, const SplitTarget& target);

}  // namespace tandem::kernels
