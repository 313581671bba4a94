#include "ps/store/update_queue.h"

namespace tandem::ps {
namespace {

size_t RowsAtOnce(uint32_t dim) { return std::clamp<size_t>(2048 / dim, 1, 32); }

}  // namespace

UpdateQueue::UpdateQueue(const SparseOptimizer& optimizer, const LazyCatchUp& missed,
                         const RowLayout& layout, RowValues& values)
    : optimizer_(optimizer),
      missed_(missed),
      layout_(layout),
      values_(values),
      rows_at_once_(RowsAtOnce(layout.dim())),
      updates_(rows_at_once_),
      waiting_(rows_at_once_),
      gradients_(rows_at_once_ * layout.dim()),
      weights_(rows_at_once_ * layout.dim()) {}

float* UpdateQueue::CurrentWeights(const RowView& row, uint64_t step) {
  float* const weights = values_.Weights(row, weights_.data() + size_ * layout_.dim());
  if (missed_.matter()) values_.BringUp(row, weights, step);
  return weights;
}

void UpdateQueue::Flush(uint64_t step, double learning_rate) {
  optimizer_.ApplyRows({updates_.data(), size_}, layout_.dim(), step, learning_rate);
  for (size_t i = 0; i < size_; ++i) {
    const RowView row = layout_.View(waiting_[i].record);
    values_.Store(row, updates_[i].weights, step);
    row.header->last_step = std::max(row.header->last_step, static_cast<uint32_t>(step));
    row.header->frequency += waiting_[i].count;
    row.header->version += 1;
  }
  size_ = 0;
}

}  // namespace tandem::ps
