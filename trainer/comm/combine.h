// Element-wise reduction: of two dense spans, and of one span over all ranks in the fixed orders of
// ring_order.h. SUM of integers wraps. MAX and MIN propagate NaN.
// Thread rule: pure functions; any thread.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/base/dtype.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

// out[i] = a[i] op b[i]. `out` may be `a` or `b`.
// REQUIRES: `out` overlaps `a` and `b` in no other way; dtype is not bf16, whose results are
// rounded once, after all ranks.
void Combine(DType dtype, ReduceOp op, void* out, const void* a, const void* b, int64_t count);

// How to reduce one span of elements over all ranks.
struct RankReduction {
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::SUM;
  SumOrder order = SumOrder::ANY;
  int size = 1;   // ranks
  int chunk = 0;  // the span's chunk in ring_order.h; TREE ignores it
};

// Reduces `count` elements over the ranks and stores the result to every output. `source(r)` is the
// first element of rank r. An output may be one of the sources. bf16 is reduced in f32, in the same
// order, and rounded once.
void ReduceOverRanks(const RankReduction& how, absl::FunctionRef<const char*(int rank)> source,
                     absl::Span<char* const> outputs, int64_t count);

}  // namespace tandem::comm
