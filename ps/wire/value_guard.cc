#include "ps/wire/value_guard.h"

#include <cmath>
#include <cstring>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/embedding.pb.h"
#include "ps/wire/row_layout.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

void ValueGuardStatistics::NoteOffender(const Offender& offender) {
  const auto place = [](const Offender& o) { return std::tuple(o.step, o.trainer, o.id); };
  if (!first.has_value() || place(offender) < place(*first)) first = offender;
}

absl::Status ValueGuardStatistics::NoteRejected(const std::string& table,
                                                const Offender& offender) {
  ++rejected;
  NoteOffender(offender);
  return absl::OutOfRangeError(absl::StrCat("table ", table, ": the gradient of id ", offender.id,
                                            " is not finite (NaN or infinity), from trainer ",
                                            offender.trainer, " in step ", offender.step));
}

absl::Status ValueGuardStatistics::NoteRejectedSum(const std::string& table,
                                                   const Offender& offender) {
  ++rejected;
  NoteOffender(offender);
  return absl::OutOfRangeError(
      absl::StrCat("table ", table, ": the gradients of id ", offender.id,
                   " are finite and their sum is not, from that of trainer ", offender.trainer,
                   " on, in step ", offender.step));
}

void ValueGuardStatistics::Merge(const ValueGuardStatistics& other) {
  rejected += other.rejected;
  skipped += other.skipped;
  mended += other.mended;
  clipped += other.clipped;
  if (other.first.has_value()) NoteOffender(*other.first);
}

std::optional<size_t> FindNonFinite(const WireRows& gradients, size_t count, uint32_t dim) {
  const WireFormat format = gradients.format();
  const size_t row_bytes = WireBytes(format, dim);
  size_t wrong = count;
  gradients.ForEachRun(count, [&](size_t first, const char* rows, size_t num_rows) {
    if (wrong != count || AllFinite(format, rows, num_rows, dim)) return;
    // A sender that can still write to the rows may have made them finite meanwhile. Then the first
    // row is named.
    size_t i = 0;
    while (i < num_rows && AllFinite(format, rows + i * row_bytes, 1, dim)) ++i;
    wrong = first + i % num_rows;
  });
  if (wrong == count) return std::nullopt;
  return wrong;
}

bool AllFinite(absl::Span<const float> values) {
  return AllFinite(WIRE_F32, reinterpret_cast<const char*>(values.data()), 1,
                   static_cast<uint32_t>(values.size()));
}

bool AllFinite(const RowLayout& layout, const char* values) {
  const WireFormat format = layout.storage() == STORED_BF16   ? WIRE_BF16
                            : layout.storage() == STORED_INT8 ? WIRE_INT8
                                                              : WIRE_F32;
  return AllFinite(format, values, 1, layout.dim()) &&
         AllFinite(WIRE_F32, values + layout.weight_bytes(), 1,
                   static_cast<uint32_t>(layout.num_slot_values()));
}

void ZeroNonFinite(absl::Span<float> values) {
  for (float& value : values) value = std::isfinite(value) ? value : 0.0f;
}

}  // namespace tandem::ps
