// Logits in blocks of columns, and the losses and gradients of their rows. A block is a dense
// operand of a product.
// Thread rule: any thread; inline bodies for Vectorised().
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/vector/lanes.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/memory/storage.h"

namespace tandem::kernels {

inline constexpr int64_t kBlockColumns = 512;

// Rows in blocks of columns: element (r, c) lies in block c / 512 at row r. A gap of one row
// separates blocks. Without the gap, the parts of a row would lie a power of two apart and evict
// each other.
template <class T>
struct Blocks {
  T* data;
  int64_t rows, columns;

  int64_t count() const { return (columns + kBlockColumns - 1) / kBlockColumns; }
  int64_t width(int64_t b) const { return std::min(kBlockColumns, columns - b * kBlockColumns); }
  T* block(int64_t b) const { return data + b * kBlockColumns * (rows + 1); }
  T* row(int64_t b, int64_t r) const { return block(b) + r * width(b); }
  int64_t size() const { return count() * kBlockColumns * (rows + 1); }
};

// Returns the loss of row r and turns its logits into their gradient: exponentials in place, then
// scaled into `grad`. `grad` may be empty or `logits` itself.
template <class T>
inline float LossRow(const Blocks<float>& logits, int64_t r, int64_t target, const Blocks<T>& grad,
                     int64_t grad_row) {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t b = 0; b < logits.count(); ++b) {
    const float block_max = LaneMax(logits.width(b), logits.row(b, r));
    max = max < block_max ? block_max : max;
  }
  const int64_t target_block = target / kBlockColumns, target_column = target % kBlockColumns;
  const float target_logit = logits.row(target_block, r)[target_column];
  float lane[kLanes] = {};
  for (int64_t b = 0; b < logits.count(); ++b) {
    float* x = logits.row(b, r);
    const int64_t n = logits.width(b);
    const auto exponential = [=](int64_t i) {
      return x[i] = Exp2((x[i] - max) * static_cast<float>(kLog2E));
    };
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      // Prefetches the next row, whose maximum would otherwise wait for memory.
      __builtin_prefetch(x + n + i, 1);
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) lane[l] += exponential(i + l);
    }
    for (int l = 0; i + l < n; ++l) lane[l] += exponential(i + l);
  }
  const float sum = FoldSum(lane), inverse = 1.0f / sum;
  if (grad.data != nullptr) {
    const float target_gradient = logits.row(target_block, r)[target_column] * inverse - 1.0f;
    for (int64_t b = 0; b < logits.count(); ++b) {
      const float* x = logits.row(b, r);
      T* to = grad.row(b, grad_row);
      const int64_t n = logits.width(b);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) to[i] = Store<T>(x[i] * inverse);
    }
    grad.row(target_block, grad_row)[target_column] = Store<T>(target_gradient);
  }
  return Log(sum) + (max - target_logit);
}

// The statistics of the classes in row r: the logarithm of the sum of exponentials, and the logit
// of class `target` (outside the classes: 0).
struct RowStatistics {
  float log_sum, target_logit;
};
inline RowStatistics StatisticsOfRow(const Blocks<float>& logits, int64_t r, int64_t target) {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t b = 0; b < logits.count(); ++b) {
    const float block_max = LaneMax(logits.width(b), logits.row(b, r));
    max = max < block_max ? block_max : max;
  }
  float lane[kLanes] = {};
  for (int64_t b = 0; b < logits.count(); ++b) {
    const float* x = logits.row(b, r);
    const int64_t n = logits.width(b);
    const auto exponential = [=](int64_t i) {
      return Exp2((x[i] - max) * static_cast<float>(kLog2E));
    };
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) lane[l] += exponential(i + l);
    }
    for (int l = 0; i + l < n; ++l) lane[l] += exponential(i + l);
  }
  const bool here = target >= 0 && target < logits.columns;
  return {Log(FoldSum(lane)) + max,
          here ? logits.row(target / kBlockColumns, r)[target % kBlockColumns] : 0.0f};
}

// Turns the logits of row r into their gradient: exp(logit - log_sum), less 1 at class `target`.
// `grad` may be `logits` itself.
template <class T>
inline void GradientOfRow(const Blocks<float>& logits, int64_t r, float log_sum, int64_t target,
                          const Blocks<T>& grad, int64_t grad_row) {
  const bool here = target >= 0 && target < logits.columns;
  const int64_t target_block = here ? target / kBlockColumns : -1;
  for (int64_t b = 0; b < logits.count(); ++b) {
    const float* x = logits.row(b, r);
    T* to = grad.row(b, grad_row);
    const int64_t n = logits.width(b);
    const float target_logit = b == target_block ? x[target % kBlockColumns] : 0.0f;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i)
      to[i] = Store<T>(Exp2((x[i] - log_sum) * static_cast<float>(kLog2E)));
    if (b == target_block) {
      to[target % kBlockColumns] =
          Store<T>(Exp2((target_logit - log_sum) * static_cast<float>(kLog2E)) - 1.0f);
    }
  }
}

}  // namespace tandem::kernels
