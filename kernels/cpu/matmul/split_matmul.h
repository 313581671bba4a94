// f32 products on AMX tiles, which multiply bf16. An f32 is exactly the sum of three bf16: itself
// rounded to bf16, the rest rounded to bf16, and the remainder. The six largest of the nine
// products of pieces give the f32 product; the rest is below 2^-24 of it. AMX sums the terms of 32
// depths before it adds them to the running sum. So the error is below that of a chain of
// multiply-adds, at one and a half times oneDNN's speed. (G. Henry, P. Tang, A. Heinecke:
// Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations,
// 2019.)
// Thread rule: pure functions on the caller's memory and, where stated, scratch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/matmul/matmul_pack.h"
#include "kernels/cpu/vector/parallel.h"

namespace tandem::kernels {

// True if the calling thread should multiply f32 in pieces: it has fast tiles, and the product is
// wide and deep enough to pay for the pieces. Depends on columns and depths of the whole product.
// Never depends on the number of rows, which must not change any bits.
bool UsesSplitProducts(int64_t n, int64_t k);

// Rows of a, columns of b and depths come in groups of kSplitUnit, padded with zeros.
inline constexpr int64_t kSplitUnit = 32;
inline constexpr int64_t kSplitPieces = 3;

// Calls body(first, count) for the depths of each SplitProduct of a Gemm whose a is not transposed.
// Both ways of splitting the Gemm use these steps, so few rows have the same bits as many rows.
inline constexpr int64_t kSplitDepth = 1024;
template <class Body>
void ForSplitDepths(int64_t k, const Body& body) {
  for (int64_t d = 0; d < k; d += kSplitDepth) body(d, std::min(kSplitDepth, k - d));
}

// The elements of an operand in pieces: `count` rows of a or columns of b.
constexpr int64_t SplitSize(int64_t count, int64_t depth) {
  return RoundUp(count, kSplitUnit) * RoundUp(depth, kSplitUnit) * kSplitPieces;
}

// The operand's side decides how a tile holds pairs of depths: as words of a row (A), or as rows of
// words (B).
enum class SplitSide { A, B };

// Writes the pieces of columns [first, first + count) of x [k, n]; rows of a count as columns. A
// group of 32 columns and 32 depths is [piece][half of the columns][tile of 1 KiB]. Groups lie in
// [columns][depth] order. Depths from x.k to `depth` are zero.
// REQUIRES: first + count <= x.n, x.k <= depth.
void SplitOperand(SplitSide side, const StoredMatrix<float>& x, int64_t first, int64_t count,
                  int64_t depth, BFloat16* to);

// The target of a product: c [m, n], rows c_row elements apart. bias [n] may be null.
struct SplitTarget {
  float* c;
  int64_t c_row;
  const float* bias = nullptr;
  bool accumulate = false;
};

// c = a b, plus the bias and the old c if asked. The operands in pieces have m rows, n columns and
// `depth` depths. Groups of 32 columns of b lie b_step elements apart: SplitSize(32, depth), or
// more if b has more depths. An element of c depends only on its row of a and its column of b.
// Numbers and products below 2^-100 lose low bits; below 2^-126 they are zero. Infinities, numbers
// from 3.39e38 on and overflows become NaN or infinite.
void SplitProduct(int64_t m, int64_t n, int64_t depth, const BFloat16* a, const BFloat16* b,
                  int64_t b_step, const SplitTarget& target);

// SplitProduct with all of b as stored. Makes the pieces of kSplitBlockColumns columns at a time in
// scratch LIBRARY: at 512 depths they stay in L2 beside a's pieces.
inline constexpr int64_t kSplitBlockColumns = 128;
void SplitProduct(int64_t m, const BFloat16* a, const StoredMatrix<float>& b,
                  const SplitTarget& target);

}  // namespace tandem::kernels
