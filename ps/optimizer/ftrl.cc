#include "ps/optimizer/ftrl.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/math.h"
#include "ps/optimizer/row_loops.h"

namespace tandem::ps {
namespace {

// The part of z beyond the threshold.
inline float SoftThreshold(float z, float threshold) {
  const float beyond = kernels::Abs(z) - threshold;
  return beyond > 0 ? std::copysign(beyond, z) : 0.0f;
}

}  // namespace

void SparseFtrl::Init(float* slots, uint32_t dim) const {
  std::fill_n(slots, dim, 0.0f);
  std::fill_n(slots + dim, dim, options_.initial_accumulator);
  slots[size_t{2} * dim] = 0;
}

void SparseFtrl::ApplyRows(absl::Span<const RowUpdate> rows, uint32_t dim, uint64_t,
                           double learning_rate) const {
  const float rate = static_cast<float>(learning_rate);
  if (!(rate > 0)) return;
  ForEachRow(rows, [=, inverse = 1 / rate, options = options_](const RowUpdate& row) {
    float* const weights = row.weights;
    float* const z = row.slots;
    float* const squares = row.slots + dim;
    float* const last_rate = row.slots + size_t{2} * dim;
    const float* const gradient = row.gradient;
    const float scale = row.scale, last_inverse = *last_rate > 0 ? 1 / *last_rate : 0;
    const float beta = options.beta, l1 = options.l1, l2 = options.l2, group_l1 = options.group_l1;
#pragma GCC ivdep
    for (uint32_t i = 0; i < dim; ++i) {
      const float g = gradient[i] * scale, before = squares[i], after = before + g * g;
      squares[i] = after;
      z[i] += g - ((beta + kernels::Sqrt(after)) * inverse -
                   (beta + kernels::Sqrt(before)) * last_inverse) *
                      weights[i];
    }
    const auto curvature = [=](int64_t i) {
      return (beta + kernels::Sqrt(squares[i])) * inverse + l2;
    };
    float kept = 1;
    if (group_l1 > 0) {
      const float norm = kernels::Sqrt(kernels::LaneSum<float>(dim, [=](int64_t i) {
        const float s = SoftThreshold(z[i], l1);
        return s * s / curvature(i);
      }));
      const float threshold = group_l1 * kernels::Sqrt(static_cast<float>(dim));
      kept = norm > threshold ? 1 - threshold / norm : 0;
    }
#pragma GCC ivdep
    for (uint32_t i = 0; i < dim; ++i)
      weights[i] = 0.0f - kept * SoftThreshold(z[i], l1) / curvature(i);
    *last_rate = rate;
  });
}

}  // namespace tandem::ps
