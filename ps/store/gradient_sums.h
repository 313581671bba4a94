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
  // The arguments outlive this object. The gradients are linked (PendingGradients::Link) when a
  // function below is called.
  GradientSums(const TableSpec& spec, const PendingGradients& pending)
      : spec_(spec), pending_(pending), addend_(spec.dim()) {}

  // Decodes a gradient as f32 into `values` [dim], and returns `values`.
  const float* Decode(const PendingGradients::Gradient& gradient, float* values) const {
    const WireFormat format = pending_.FormatOf(gradient);
    if (format == WIRE_F32)
      CopyBytes(values, gradient.bytes, spec_.dim() * sizeof(float));
    else
      DecodeRow(format, gradient.bytes, spec_.dim(), values);
    return values;
  }
  // Prefetches the gradients that Sum will read.
  void Fetch(size_t pending_row, const RecordPrefetch& lines) const {
    for (const auto* gradient = &pending_.first(pending_row); gradient != nullptr;
         gradient = pending_.next(*gradient)) {
      lines.Into<RecordPrefetch::kFirstCache>(gradient->bytes);
    }
  }
  // Writes the sum of the gradients of the pending row with this index to `sum` [dim]. Returns how
  // many gradients were added; 0 means that the row has none. Statistics count the row's gradients
  // if `counts`.
  uint32_t Sum(size_t pending_row, uint64_t step, bool counts, float* sum);
  // Returns `scale`, or less if `sum` times `scale` were longer than max_row_norm.
  float ClippedScale(const float* sum, float scale);

  // Statistics of gradients that were committed or skipped.
  const ValueGuardStatistics& guarded() const { return guarded_; }
  // OutOfRange, naming the row with the smallest id, after REJECT met an infinite sum of finite
  // gradients. Other rows have the step, so the table is no longer usable.
  const absl::Status& overflow() const { return overflow_; }

 private:
  void Add(size_t pending_row, float* sum);
  uint32_t SumMended(size_t pending_row, uint64_t step, bool counts, float* sum);
  // Applies the table's policy to a sum of finite gradients that is not finite. Returns how many of
  // the `added` gradients count. `trainer` sent the gradient that made the sum infinite.
  uint32_t MendSum(size_t pending_row, uint64_t step, uint32_t trainer, uint32_t added, bool counts,
                   float* sum);

  const TableSpec& spec_;
  const PendingGradients& pending_;
  std::vector<float> addend_;  // [dim]: the gradient to add next
  ValueGuardStatistics guarded_;
  absl::Status overflow_;
  uint64_t overflow_id_ = 0;  // id of the row that overflow_ names
};

}  // namespace tandem::ps
