// The record of one row, contiguous in memory: header, weights as the table stores them, then the
// optimizer's slots in f32. Weights of a cache line or more start on a cache line. Smaller rows are
// packed behind the header, so that a one-number row does not cost 128 bytes. The record has
// everything that a checkpoint or a move of the row needs.
// Thread rule: values and arithmetic only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/numeric/int128.h"
#include "ps/wire/row_codec.h"

namespace tandem::ps {

// Version of the record below, stored beside saved rows. Change this number whenever the record
// changes.
inline constexpr uint32_t kRowLayoutVersion = 2;

struct RowHeader {
  uint64_t id = 0;
  // The step after which the row stands: its last commit, or a step that its mode brought it up to.
  // 0: never committed.
  uint32_t last_step = 0;
  uint32_t frequency = 0;  // gradients that reached the row, over all pushes
  uint32_t version = 0;    // commits that changed the row
  uint32_t flags = 0;      // none defined yet
};
static_assert(sizeof(RowHeader) == 24);

// Pointers into the record of a row.
struct RowView {
  RowHeader* header = nullptr;
  char* weights = nullptr;  // [dim], encoded as in row_codec.h
  float* slots = nullptr;   // [num_slot_values]
};

class RowLayout {
 public:
  RowLayout(uint32_t dim, RowStorage storage, size_t num_slot_values)
      : dim_(dim),
        storage_(storage),
        num_slot_values_(num_slot_values),
        weight_bytes_(RoundUp(StoredBytes(storage, dim), alignof(float))),
        weights_offset_(weight_bytes_ >= kCacheLine ? kCacheLine : sizeof(RowHeader)),
        stride_(RoundUp(weights_offset_ + value_bytes(),
                        weights_offset_ == kCacheLine ? kCacheLine : alignof(RowHeader))) {}

  uint32_t dim() const { return dim_; }
  RowStorage storage() const { return storage_; }
  size_t num_slot_values() const { return num_slot_values_; }
  size_t weights_offset() const { return weights_offset_; }
  size_t weight_bytes() const { return weight_bytes_; }
  // Bytes of weights and slots, which are adjacent.
  size_t value_bytes() const { return weight_bytes_ + num_slot_values_ * sizeof(float); }
  // The sum of the sizes of all fields, without padding between them.
  size_t field_bytes() const {
    return sizeof(RowHeader) + StoredBytes(storage_, dim_) + num_slot_values_ * sizeof(float);
  }
  // Bytes from one row to the next. Rows in 64-byte aligned memory have the alignment that the top
  // of this file promises.
  size_t stride() const { return stride_; }

  RowView View(char* record) const {
    char* const weights = record + weights_offset_;
    return {reinterpret_cast<RowHeader*>(record), weights,
            reinterpret_cast<float*>(weights + weight_bytes_)};
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

// The share of params_hash of a row of table `table`. `values` are its weights and slots, as the
// record has them.
absl::uint128 HashRow(std::string_view table, const RowLayout& layout, uint64_t id,
                      const char* values);

}  // namespace tandem::ps
