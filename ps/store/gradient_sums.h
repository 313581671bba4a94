// The sums of the rows' pending gradients, in f32, in the order of PendingGradients. The table's
// policy for numbers that are not finite (TableSpec.NonFinite) applies here, so its effect does not
// depend on how pushes were cut.
// A row whose finite gradients add up to an infinity counts as a row with a gradient that is not
// finite. SKIP leaves the row as it was. CLIP sets the infinite numbers to 0. REJECT leaves the
// row as it was and sets overflow().
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/embedding.pb.h"
#include "ps/store/pending_gradients.h"
#include "ps/store/record_prefetch.h"
#include "ps/store/row_store.h"
#include "ps/wire/value_guard.h"
#include "ps/wire/wire_codec.h"

namespace tandem::ps {

// Adds in eight fixed lanes, then sums the lanes from left to right, for the same bits on every
// machine.
double SquaredNorm(const float* x, size_t dim);

class GradientSums {
 public:
  // A row's sum: in the receive buffer of a lone gradient, or in the caller's room.
  struct RowSum {
    const float* values;
    uint32_t count;  // gradients that were added; 0: the row has none
  };

  // The arguments outlive this object. The gradients are linked (PendingGradients::Link) when a
  // function below is called.
  GradientSums(const TableSpec& spec, const PendingGradients& pending)
      : spec_(spec),
        pending_(pending),
        reads_once_(spec.non_finite() == TableSpec::REJECT && spec.max_row_norm() == 0),
        addend_(spec.dim()) {}

  // Prefetches the gradients that Sum will read.
  void Fetch(size_t pending_row, const RecordPrefetch& lines) const {
    for (const auto* gradient = &pending_.first(pending_row); gradient != nullptr;
         gradient = pending_.next(*gradient)) {
      lines.Fetch(gradient->bytes);
    }
  }
  // Returns the sum of the gradients of the pending row with this index. Statistics count the row's
  // gradients if `counts`. `room` [dim] is for a sum that lies nowhere yet.
  RowSum Sum(size_t pending_row, uint64_t step, bool counts, float* room) {
    const PendingGradients::Gradient& first = pending_.first(pending_row);
    // Reads a lone gradient once, in place: its sender may still write to its memory.
    if (reads_once_ && pending_.next(first) == nullptr) [[likely]] {
      if (!pending_.all_floats()) return {Decode(first, room), 1};
      return {reinterpret_cast<const float*>(first.bytes), 1};
    }
    return {room, SumAll(pending_row, step, counts, room)};
  }
  // Returns `scale`, or less if `sum` times `scale` were longer than max_row_norm.
  float ClippedScale(const float* sum, float scale) {
    return spec_.max_row_norm() == 0 ? scale : Clip(sum, scale);
  }

  // Statistics of gradients that were committed or skipped.
  const ValueGuardStatistics& guarded() const { return guarded_; }
  // OutOfRange, naming the row with the smallest id, after REJECT met an infinite sum of finite
  // gradients. Other rows have the step, so the table is no longer usable.
  const absl::Status& overflow() const { return overflow_; }

 private:
  // Decodes a gradient as f32 into `values` [dim], and returns `values`.
  const float* Decode(const PendingGradients::Gradient& gradient, float* values) const {
    const WireFormat format = pending_.FormatOf(gradient);
    if (format == WIRE_F32)
      CopyBytes(values, gradient.bytes, spec_.dim() * sizeof(float));
    else
      DecodeRow(format, gradient.bytes, spec_.dim(), values);
    return values;
  }
  // Writes the sum to `sum` [dim] and returns how many gradients were added.
  [[gnu::noinline]] uint32_t SumAll(size_t pending_row, uint64_t step, bool counts, float* sum);
  [[gnu::noinline]] float Clip(const float* sum, float scale);
  uint32_t SumMended(size_t pending_row, uint64_t step, bool counts, float* sum);
  // Applies the table's policy to a sum of finite gradients that is not finite. Returns how many of
  // the `added` gradients count. `trainer` sent the gradient that made the sum infinite.
  uint32_t MendSum(size_t pending_row, uint64_t step, uint32_t trainer, uint32_t added, bool counts,
                   float* sum);

  const TableSpec& spec_;
  const PendingGradients& pending_;
  const bool reads_once_;  // the table's policy needs no look at a lone gradient before its update
  std::vector<float> addend_;  // [dim]: the gradient to add next
  ValueGuardStatistics guarded_;
  absl::Status overflow_;
  uint64_t overflow_id_ = 0;  // id of the row that overflow_ names
};

}  // namespace tandem::ps
