// Element-wise reduction of dense spans, and of one span over all ranks in the fixed orders of ring_order.h.
// SUM of integers wraps; MAX and MIN pass a NaN on. Pure functions: any thread.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "kernels/base/dtype.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

// out[i] = a[i] op b[i]. `out` may be `a` or `b`, not overlap them otherwise. REQUIRES: dtype is not bf16.
void Combine(DType dtype, ReduceOp op, void* out, const void* a, const void* b, int64_t count);

// How one span of elements is reduced over all ranks.
struct RankReduction {
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::SUM;
  SumOrder order = SumOrder::ANY;
  int size = 1;   // ranks
  int chunk = 0;  // the span's chunk in ring_order.h; not used by TREE
};

// Reduces `count` elements over the ranks, `source(r)` being rank r's first one, and stores the result to every output.
// An output may be one of the sources.
void ReduceOverRanks(const RankReduction& how, absl::FunctionRef<const char*(int rank)> source,
                     absl::Span<char* const> outputs, int64_t count);

}  // namespace tandem::comm
