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
};

// result = op(first) op(second), plus the old result if it accumulates, plus bias[i], of the result's type, in row i unless that is
// null. With `before_gelu`, of the result's layout, that gets these sums and the result their GELU.
struct GemmPlan {
  ColumnMajor first, second, result;
  bool transpose_first, transpose_second;
  int64_t depth;  // extent that is summed over
  bool accumulate;
  const void* bias;
  void* before_gelu = nullptr;
};

// The largest power of two, up to 16, that divides an address. Beyond 16 bytes no access is wider, and what is chosen by it
// shall not depend on where memory happens to lie.
inline int AlignmentOf(const void* data) {
  constexpr uintptr_t kWidest = 16;
  const uintptr_t bits = reinterpret_cast<uintptr_t>(data) | kWidest;
  return static_cast<int>(bits & -bits);
}

// Whether the product itself may add the bias: it has the result's type, for the library knows no other; it begins where vectors
// may; and the product is no product of single rows or columns, for which this epilogue has been refused.
inline bool TakesBias(const GemmArgs& args) {
  return !args.bias.empty() && args.bias.dtype == args.c.dtype && AlignmentOf(args.bias.data) == 16 && args.b.shape[0] > 1 &&
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
          .bias = TakesBias(args) ? args.bias.data : nullptr};
}

// Whether the product itself may store its activation beside itself. The library's GELU is the one by tanh; it leaves its argument
// where vectors may begin in every column, and adds a bias under the conditions above.
inline bool TakesActivation(const GemmArgs& args, Activation activation) {
  const bool whole_vectors = args.c.shape[1] % 8 == 0 && AlignmentOf(args.c.data) == 16;
  return activation == Activation::GELU_TANH && args.c.dtype == DType::BF16 && whole_vectors && args.b.shape[0] > 1 &&
         args.b.shape[1] > 1 && (args.bias.empty() || TakesBias(args));
}

// REQUIRES: TakesActivation.
inline GemmPlan PlanGemmActivate(const GemmArgs& args, const ArrayView& activated) {
  GemmPlan plan = PlanGemm(args);
  plan.result = AsColumnMajor(activated);
  plan.before_gelu = args.c.data;
  return plan;
}

}  // namespace tandem::kernels::cuda
