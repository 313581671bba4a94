// How the row-major product of kernels/gemm.h is asked of cuBLASLt, which thinks in columns. A row-major array [R, C] is a
// column-major matrix of C rows and R columns whose columns begin C elements apart, so c = op(a) op(b) is c' = op(b)' op(a)': b
// comes first, both keep their flags, and a bias of c's columns is one of the result's rows. Plain functions, so that a CPU
// tests what a GPU will run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/gemm.h"

namespace tandem::kernels::cuda {

struct ColumnMajor {
  void* data;
  DType dtype;
  int64_t rows, columns;
  int64_t leading;  // elements from one column to the next

  // Columns [begin, begin + count), or rows.
  ColumnMajor Columns(int64_t begin, int64_t count) const { return Part(begin * leading, rows, count); }
  ColumnMajor Rows(int64_t begin, int64_t count) const { return Part(begin, count, columns); }

 private:
  ColumnMajor Part(int64_t elements, int64_t part_rows, int64_t part_columns) const {
    const int64_t bytes = elements * static_cast<int64_t>(SizeOf(dtype));
    return {static_cast<char*>(data) + bytes, dtype, part_rows, part_columns, leading};
  }
};

// result = op(first) op(second), plus the old result if it accumulates, plus bias[i] in row i unless that is null.
struct GemmPlan {
  ColumnMajor first, second, result;
  bool transpose_first, transpose_second;
  int64_t depth;  // extent that is summed over
  bool accumulate;
  const float* bias;
};

// The largest power of two, up to 16, that divides an address. Beyond 16 bytes no access is wider, and what is chosen by it
// shall not depend on where memory happens to lie.
inline int AlignmentOf(const void* data) {
  constexpr uintptr_t kWidest = 16;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(data) | kWidest;
  return static_cast<int>(bits & -bits);
}

// Whether the product itself may add the bias: it is F32, which the library takes for an F32 result only; it begins where
// vectors may; and the product is no product of single rows or columns, for which this epilogue has been refused.
inline bool TakesBias(const GemmArgs& args) {
  return args.c.dtype == DType::F32 && !args.bias.empty() && AlignmentOf(args.bias.data) == 16 && args.b.shape[0] > 1 &&
         args.b.shape[1] > 1;
}

inline ColumnMajor AsColumnMajor(const ArrayView& x) {
  return {x.data, x.dtype, x.shape[1], x.shape[0], std::max<int64_t>(1, x.shape[1])};
}

// The bias is part of the plan if TakesBias.
inline GemmPlan PlanGemm(const GemmArgs& args) {
  return {.first = AsColumnMajor(args.b),
          .second = AsColumnMajor(args.a),
          .result = AsColumnMajor(args.c),
          .transpose_first = args.transpose_b,
          .transpose_second = args.transpose_a,
          .depth = args.a.shape[args.transpose_a ? 0 : 1],
          .accumulate = args.accumulate,
          .bias = TakesBias(args) ? args.bias.as<float>() : nullptr};
}

// The same for rows [begin, begin + count) of the row-major c.
inline GemmPlan RowsOf(const GemmPlan& plan, int64_t begin, int64_t count) {
  GemmPlan part = plan;
  part.second = plan.transpose_second ? plan.second.Rows(begin, count) : plan.second.Columns(begin, count);
  part.result = plan.result.Columns(begin, count);
  return part;
}

// Rows of c [m, n] whose f32 sums are computed at a time before they are rounded: 32 MiB, most of which is still in the
// second-level cache when it is read again. Parts of equal size, of whole tiles.
inline int64_t RowsAtATime(int64_t m, int64_t n) {
  constexpr int64_t kTile = 128, kBytes = 32 << 20;
  const int64_t most = std::max(kTile, kBytes / static_cast<int64_t>(sizeof(float)) / n / kTile * kTile);
  const int64_t parts = (m + most - 1) / most;
  return std::min(m, ((m + parts - 1) / parts + kTile - 1) / kTile * kTile);
}

}  // namespace tandem::kernels::cuda
