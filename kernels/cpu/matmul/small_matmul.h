// Products of small matrices in scratch, for the inside of attention. Operands are slices of one
// sequence; a library call per slice would cost more than the product. It would also compute the
// unwanted half of a causal product. Each element of c adds its terms in ascending depth by fused
// multiply-adds. So its bits depend neither on the shape of a tile nor on what else is computed.
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/cpu/vector/row_prefetch.h"
#include "kernels/cpu/vector/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <immintrin.h>
#endif

namespace tandem::kernels {

// Rows of a tile. With 4 vectors per row, sums fill 24 of AVX-512's 32 registers.
inline constexpr int64_t kTileRows = 6;

// Element (i, d) of a is a[i * a_row + d * a_depth]. Rows of b and c are contiguous, b_row and
// c_row elements apart.
template <class T>
struct SmallOperands {
  const T* a;
  int64_t a_row, a_depth;
  const T* b;
  int64_t b_row;
  T* c;
  int64_t c_row;
};

// The part of a tile of rows to compute: sums over depths [depth_begin, depth_end), in columns
// [column_begin, column_end), added to the old c if `accumulate`. Column bounds are multiples of
// kLanes.
struct TileExtent {
  int64_t depth_begin, depth_end, column_begin, column_end;
  bool accumulate;
};

// The elements of one vector of the copy's width, and the vectors per row of a tile.
template <InstructionSet kSet, class T>
inline constexpr int kVectorLanes = (kSet == InstructionSet::AVX512 ? 64
                                     : kSet == InstructionSet::AVX2 ? 32
                                                                    : 16) /
                                    sizeof(T);
template <InstructionSet kSet>
inline constexpr int kTileVectors = kSet == InstructionSet::AVX512 ? 4
                                    : kSet == InstructionSet::AVX2 ? 2
                                                                   : 1;

// Multiplies a tile of kRows x (kVectors kWidth). `sums` are kRows * kVectors arrays, made one by
// one: the compiler keeps named one-vector arrays in registers, but not an array of arrays.
template <int kRows, int kVectors, int kWidth, class T, class... Sums>
inline void MultiplyTileInVectors(const T* __restrict__ a, int64_t a_row, int64_t a_depth,
                                  const T* __restrict__ b, int64_t b_row, int64_t depth,
                                  bool accumulate, T* __restrict__ c, int64_t c_row,
                                  Sums&... sums) {
  constexpr int kMade = sizeof...(Sums);
  if constexpr (kMade < kRows * kVectors) {
    T sum[kWidth];
    const T* old = c + kMade / kVectors * c_row + kMade % kVectors * kWidth;
    for (int l = 0; l < kWidth; ++l) sum[l] = accumulate ? old[l] : T(0);
    MultiplyTileInVectors<kRows, kVectors, kWidth>(a, a_row, a_depth, b, b_row, depth, accumulate,
                                                   c, c_row, sums..., sum);
  } else {
    for (int64_t d = 0; d < depth; ++d, a += a_depth, b += b_row) {
      int i = 0;
      const auto add = [&](T* sum) {
        const T factor = a[i / kVectors * a_row];
        const T* row = b + i % kVectors * kWidth;
        for (int l = 0; l < kWidth; ++l) sum[l] = Fma(factor, row[l], sum[l]);
        ++i;
      };
      (add(sums), ...);
    }
    int i = 0;
    const auto store = [&](const T* sum) {
      for (int l = 0; l < kWidth; ++l) c[i / kVectors * c_row + i % kVectors * kWidth + l] = sum[l];
      ++i;
    };
    (store(sums), ...);
  }
}

#ifdef TANDEM_VECTOR_COPIES

// Hides a row pointer's origin from the compiler. Otherwise the compiler computes the addresses of
// all rows of a tile before the loop. It spills the addresses until the sums are stored.
template <class T>
inline T* Opaque(T* row) {
  asm("" : "+r"(row));
  return row;
}

// The f32 tile by hand, never inlined. Inlined between other loops, the tile gets too few registers
// from g++ 12. The spilled loop counter and pointers then stall a narrow tile. Prefetches lines of
// `prefetch` between its steps of depth.
template <int kRows, int kVectors>
__attribute__((target("avx512f"), noinline)) void MultiplyTileAvx512(
    const float* a, int64_t a_row, int64_t a_depth, const float* b, int64_t b_row, int64_t depth,
    bool accumulate, float* c, int64_t c_row, RowPrefetch& prefetch) {
  constexpr int kWidth = 16, kHalf = kTileRows / 2;
  __m512 sums[kRows][kVectors];
  if (accumulate) {
    const float* old = c;
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i, old = Opaque(old + c_row)) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_loadu_ps(old + v * kWidth);
    }
  } else {
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_setzero_ps();
    }
  }
  const int64_t period = prefetch.PiecesPerLine();
  // An address is then a register plus a small multiple of another.
  const float* a_lower = Opaque(a + kHalf * a_row);
  for (int64_t d = 0, line = 0; d < depth; ++d, a += a_depth, a_lower += a_depth, b += b_row) {
    if (d == line) {
      prefetch.Fetch();
      line += period;
    }
    __m512 row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = _mm512_loadu_ps(b + v * kWidth);
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      const __m512 factor = _mm512_set1_ps((i < kHalf ? a : a_lower)[i % kHalf * a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_fmadd_ps(factor, row[v], sums[i][v]);
    }
  }
  float* to = Opaque(c);
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i, to = Opaque(to + c_row)) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(to + v * kWidth, sums[i][v]);
  }
}

#endif

// Multiply-adds of one piece of arithmetic of a `prefetch`: one step of depth of the largest tile.
inline constexpr int64_t kSmallPiece =
    kTileRows * kTileVectors<InstructionSet::AVX512> * kVectorLanes<InstructionSet::AVX512, float>;

template <InstructionSet kSet, int kRows, int kVectors, class T>
inline void MultiplyTile(const T* a, int64_t a_row, int64_t a_depth, const T* b, int64_t b_row,
                         int64_t depth, bool accumulate, T* c, int64_t c_row,
                         RowPrefetch& prefetch) {
#ifdef TANDEM_VECTOR_COPIES
  if constexpr (kSet == InstructionSet::AVX512 && std::is_same_v<T, float>) {
    return MultiplyTileAvx512<kRows, kVectors>(a, a_row, a_depth, b, b_row, depth, accumulate, c,
                                               c_row, prefetch);
  }
#endif
  prefetch.Pass(kRows * kVectors * kVectorLanes<kSet, T> * depth / kSmallPiece);
  MultiplyTileInVectors<kRows, kVectors, kVectorLanes<kSet, T>>(a, a_row, a_depth, b, b_row, depth,
                                                                accumulate, c, c_row);
}

// c [rows, columns] = a b. extent(i) gives the part of rows [i, i + kTileRows) to compute, for i a
// multiple of kTileRows. Never reads past the last row, because denormals there would make the
// multiplications many times slower.
template <class T, class Extent>
void SmallMatmul(int64_t rows, const SmallOperands<T>& operands, RowPrefetch& prefetch,
                 const Extent& extent) {
  Vectorised([=, o = operands, &prefetch](auto set) {
    constexpr int kWidth = kVectorLanes<set, T>, kVectors = kTileVectors<set>;
    const auto multiply_rows = [&](auto tile_rows, int64_t i) {
      const TileExtent e = extent(i);
      const T* a = o.a + i * o.a_row + e.depth_begin * o.a_depth;
      const int64_t depth = e.depth_end - e.depth_begin;
      const auto multiply = [&](auto vectors, int64_t column) {
        MultiplyTile<set, tile_rows, vectors>(
            a, o.a_row, o.a_depth, o.b + e.depth_begin * o.b_row + column, o.b_row, depth,
            e.accumulate, o.c + i * o.c_row + column, o.c_row, prefetch);
      };
      int64_t column = e.column_begin;
      for (; column + kVectors * kWidth <= e.column_end; column += kVectors * kWidth) {
        multiply(std::integral_constant<int, kVectors>{}, column);
      }
      const int64_t left = (e.column_end - column) / kWidth;
      if constexpr (kVectors > 3) {
        if (left == 3) multiply(std::integral_constant<int, 3>{}, column);
      }
      if constexpr (kVectors > 2) {
        if (left == 2) multiply(std::integral_constant<int, 2>{}, column);
      }
      if constexpr (kVectors > 1) {
        if (left == 1) multiply(std::integral_constant<int, 1>{}, column);
      }
    };
    const int64_t last = rows / kTileRows * kTileRows, left = rows - last;
    for (int64_t i = 0; i < last; i += kTileRows)
      multiply_rows(std::integral_constant<int, kTileRows>{}, i);
    if (left == 1) multiply_rows(std::integral_constant<int, 1>{}, last);
    if (left == 2) multiply_rows(std::integral_constant<int, 2>{}, last);
    if (left == 3) multiply_rows(std::integral_constant<int, 3>{}, last);
    if (left == 4) multiply_rows(std::integral_constant<int, 4>{}, last);
    if (left == 5) multiply_rows(std::integral_constant<int, 5>{}, last);
  });
}

}  // namespace tandem::kernels
