// Rows that wait for the optimizer, which updates several rows in one call. The rows of a call
// stay in the first cache, with their gradients.
// Thread rule: one thread.
// Invariant: until Flush, records and gradients stay in place. So flush before a row is created.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ps/optimizer/lazy_catch_up.h"
#include "ps/optimizer/sparse_optimizer.h"
#include "ps/store/row_values.h"
#include "ps/wire/row_layout.h"

namespace tandem::ps {

class UpdateQueue {
 public:
  // The arguments outlive this object.
  UpdateQueue(const SparseOptimizer& optimizer, const LazyCatchUp& missed, const RowLayout& layout,
              RowValues& values);

  // Room [dim] for the gradient of the row that is added next.
  float* gradient() { return gradients_.data() + size_ * layout_.dim(); }
  // Adds a row with `sum`, the sum of `count` gradients. Runs the steps that the row has missed.
  // REQUIRES: the row is not queued.
  void Add(char* record, const float* sum, uint32_t count, float scale, uint64_t step,
           double learning_rate) {
    const RowView row = layout_.View(record);
    const bool as_stored = layout_.storage() == STORED_F32 && !missed_.matter();
    float* const weights =
        as_stored ? reinterpret_cast<float*>(row.weights) : CurrentWeights(row, step - 1);
    updates_[size_] = {weights, row.slots, sum, scale};
    waiting_[size_] = {record, count};
    if (++size_ == rows_at_once_) Flush(step, learning_rate);
  }
  // Updates the rows.
  [[gnu::noinline]] void Flush(uint64_t step, double learning_rate);

 private:
  // Returns a row's weights in f32, after step `step`.
  [[gnu::noinline]] float* CurrentWeights(const RowView& row, uint64_t step);

  struct Waiting {
    char* record;
    uint32_t count;  // number of gradients
  };

  const SparseOptimizer& optimizer_;
  const LazyCatchUp& missed_;
  const RowLayout& layout_;
  RowValues& values_;
  const size_t rows_at_once_;
  size_t size_ = 0;
  std::vector<RowUpdate> updates_;
  std::vector<Waiting> waiting_;
  std::vector<float> gradients_;  // [rows_at_once, dim]
  std::vector<float> weights_;    // [rows_at_once, dim]: f32 weights of queued rows
};

}  // namespace tandem::ps
