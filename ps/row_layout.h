// The record of one row, contiguous in memory: header {id, last_step, frequency, version, flags}, weights f32[dim], then
// the optimizer's slots, f32[dim] each. For dim >= 16 the weights start on a cache line; smaller rows are packed so that a
// one-number row does not cost 128 bytes. Everything that a checkpoint or a move of the row needs is inside the record.
// Thread rule: values and arithmetic only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::ps {

// Changes whenever the record below changes; stored beside saved rows.
inline constexpr uint32_t kRowLayoutVersion = 1;

struct RowHeader {
  uint64_t id = 0;
  uint32_t last_step = 0;  // step of the last commit that changed the row; 0: never committed
  uint32_t frequency = 0;  // gradients that reached the row, over all pushes
  uint32_t version = 0;    // commits that changed the row
  uint32_t flags = 0;      // none defined yet
};
static_assert(sizeof(RowHeader) == 24);

// A row where it lives.
struct RowView {
  RowHeader* header = nullptr;
  float* weights = nullptr;
  float* slots = nullptr;  // [num_slots, dim]
  uint32_t dim = 0;

  float* slot(int i) const { return slots + static_cast<size_t>(i) * dim; }
};

class RowLayout {
 public:
  RowLayout(uint32_t dim, int num_slots)
      : dim_(dim),
        num_slots_(num_slots),
        weights_offset_(dim >= 16 ? 64 : sizeof(RowHeader)),
        stride_(RoundUp(weights_offset_ + sizeof(float) * dim * (1 + static_cast<size_t>(num_slots)),
                        dim >= 16 ? 64 : alignof(RowHeader))) {}

  uint32_t dim() const { return dim_; }
  int num_slots() const { return num_slots_; }
  size_t weights_offset() const { return weights_offset_; }
  // Bytes from one row to the next. Rows in a 64-byte aligned slab keep the alignment promised above.
  size_t stride() const { return stride_; }

  RowView View(char* record) const {
    float* weights = reinterpret_cast<float*>(record + weights_offset_);
    return {reinterpret_cast<RowHeader*>(record), weights, weights + dim_, dim_};
  }

 private:
  static constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

  uint32_t dim_;
  int num_slots_;
  size_t weights_offset_;
  size_t stride_;
};

}  // namespace tandem::ps
