// Splits rows into tasks for the stream's pool, and dispatches on the element type. The split
// depends on the shape alone, so no bit of a result depends on the number of threads.
// Thread rule: the stream's thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/array_view.h"
#include "kernels/memory/stream.h"

namespace tandem::kernels {

// Rounds x up to a multiple of `quantum`.
constexpr int64_t RoundUp(int64_t x, int64_t quantum) {
  return (x + quantum - 1) / quantum * quantum;
}

// Elementary operations per task: some ten microseconds, much more than waking a thread costs.
inline constexpr int64_t kTaskCost = 32768;

// Runs body(begin, end) over consecutive blocks of [0, num_rows), of about kTaskCost / row_cost
// rows each.
template <class Body>
void ParallelRows(Stream& stream, int64_t num_rows, int64_t row_cost, const Body& body) {
  const int64_t block = std::max<int64_t>(1, kTaskCost / std::max<int64_t>(1, row_cost));
  stream.pool().ParallelFor((num_rows + block - 1) / block, [&](int64_t task) {
    body(task * block, std::min(num_rows, (task + 1) * block));
  });
}

// Calls body(T{}) with the element type of a float view: float, or double for the reference
// instance.
template <class Body>
void WithFloatType(DType dtype, const Body& body) {
  if (dtype == DType::F32) return body(float{});
  TANDEM_CHECK(dtype == DType::F64) << "no kernel for elements of type " << NameOf(dtype);
  body(double{});
}

}  // namespace tandem::kernels
