// Guards a table against pushed gradients that would ruin it: NaN or infinity
// (TableSpec.NonFinite), or a norm above TableSpec.max_row_norm. REJECT checks a whole message
// before any of it is used. The other policies check where a row's gradients are summed. So the
// result does not depend on how pushes were cut. Each dropped or mended gradient is counted once,
// in its step.
// Thread rule: free functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem::ps {

class RowLayout;
class WireRows;

struct ValueGuardStatistics {
  struct Offender {
    uint64_t id = 0;
    uint32_t trainer = 0;
    uint64_t step = 0;
  };

  // A row's sum that overflows counts as one row gradient.

  // Messages refused for a row gradient that was not finite, and sums that overflowed.
  uint64_t rejected = 0;
  uint64_t skipped = 0;  // row gradients dropped because they were not finite
  // Row gradients with numbers that were not finite; those numbers became 0.
  uint64_t mended = 0;
  uint64_t clipped = 0;           // rows clipped to max_row_norm, over all steps
  std::optional<Offender> first;  // the first row gradient that was not finite

  // `first` stays the first by step, then trainer, then id, so that it does not depend on the
  // number of servers and workers.
  void NoteOffender(const Offender& offender);
  // Counts a message for table `table` that is refused because of this gradient, and returns
  // OutOfRange.
  absl::Status NoteRejected(const std::string& table, const Offender& offender);
  // Counts a step that is refused because a row's finite gradients add up to an infinity, and
  // returns OutOfRange. `offender` is the first gradient that makes the sum infinite.
  absl::Status NoteRejectedSum(const std::string& table, const Offender& offender);
  void Merge(const ValueGuardStatistics& other);
};

// Returns the index of the first of `count` gradient rows that has a NaN or an infinity.
std::optional<size_t> FindNonFinite(const WireRows& gradients, size_t count, uint32_t dim);
bool AllFinite(absl::Span<const float> values);
// Checks one row's weights and slots, laid out as in tables and files.
bool AllFinite(const RowLayout& layout, const char* values);
// The reason why a checkpoint refuses a row.
inline constexpr char kNotFinite[] =
    "has a weight or optimizer state that is not finite (NaN or infinity)";

// Sets numbers that are not finite to 0.
void ZeroNonFinite(absl::Span<float> values);

}  // namespace tandem::ps
