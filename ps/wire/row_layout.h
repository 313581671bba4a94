// The record of one row, contiguous in memory: header {id, last_step, frequency, version, flags}, weights as the table stores them,
// then the optimizer's slots in f32. Weights of a cache line or more start on one; smaller rows are packed behind the header so that a
// one-number row does not cost 128 bytes. Everything that a checkpoint or a move of the row needs is inside the record.
// Thread rule: values and arithmetic only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ps/wire/row_codec.h"

namespace tandem::ps {

// Changes whenever the record below changes; stored beside saved rows.
inline constexpr uint32_t kRowLayoutVersion = 2;

struct RowHeader {
  uint64_t id = 0;
  uint32_t last_step = 0;  // after which the row stands: its last commit's, or one that its mode brought it up to; 0: never committed
  uint32_t frequency = 0;  // gradients that reached the row, over all pushes
  uint32_t version = 0;    // commits that changed the row
  uint32_t flags = 0;      // none defined yet
};
static_assert(sizeof(RowHeader) == 24);

// A row where it lives.
struct RowView {
  RowHeader* header = nullptr;
  char* weights = nullptr;   // [dim] as row_codec.h has them
  float* slots = nullptr;    // [num_slot_values]
};

class RowLayout {
 public:
  RowLayout(uint32_t dim, RowStorage storage, size_t num_slot_values)
      : dim_(dim),
        storage_(storage),
        num_slot_values_(num_slot_values),
        weight_bytes_(RoundUp(StoredBytes(storage, dim), alignof(float))),
        weights_offset_(weight_bytes_ >= kCacheLine ? kCacheLine : sizeof(RowHeader)),
        stride_(RoundUp(weights_offset_ + value_bytes(), weights_offset_ == kCacheLine ? kCacheLine : alignof(RowHeader))) {}

  uint32_t dim() const { return dim_; }
  RowStorage storage() const { return storage_; }
  size_t num_slot_values() const { return num_slot_values_; }
  size_t weights_offset() const { return weights_offset_; }
  size_t weight_bytes() const { return weight_bytes_; }
  // Weights and slots, which follow each other.
  size_t value_bytes() const { return weight_bytes_ + num_slot_values_ * sizeof(float); }
  // The sum of the fields' sizes: what a row would take if nothing lay between them.
  size_t field_bytes() const { return sizeof(RowHeader) + StoredBytes(storage_, dim_) + num_slot_values_ * sizeof(float); }
  // Bytes from one row to the next. Rows of 64-byte aligned memory keep the alignment promised above.
  size_t stride() const { return stride_; }

  RowView View(char* record) const {
    char* const weights = record + weights_offset_;
    return {reinterpret_cast<RowHeader*>(record), weights, reinterpret_cast<float*>(weights + weight_bytes_)};
  }

 private:
  static constexpr size_t kCacheLine = 64;
  static constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

  uint32_t dim_;
  RowStorage storage_;
  size_t num_slot_values_;
  size_t weight_bytes_;
  size_t weights_offset_;
  size_t stride_;
};

}  // namespace tandem::ps
