// What a table does with pushed gradients that would ruin it: a NaN or an infinity (TableSpec.NonFinite), or too large a norm
// (TableSpec.max_row_norm). REJECT works on a message, before any of it is used. The others work where a row's gradients are added up, so
// that what is kept does not depend on how pushes were cut; each is counted once, in the step that drops or mends it.
// Thread rule: free functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/embedding.pb.h"
#include "ps/wire/row_layout.h"
#include "ps/wire/wire_rows.h"

namespace tandem::ps {

struct ValueGuardStatistics {
  struct Offender {
    uint64_t id = 0;
    uint32_t trainer = 0;
    uint64_t step = 0;
  };

  // A row's sum that overflows counts as one row gradient.
  uint64_t rejected = 0;  // messages refused for a row gradient that was not finite, and sums that overflowed
  uint64_t skipped = 0;   // row gradients dropped because they were not finite
  uint64_t mended = 0;    // row gradients whose numbers that were not finite became 0
  uint64_t clipped = 0;   // rows whose gradient was clipped to max_row_norm, over all steps
  std::optional<Offender> first;  // the first row gradient that was not finite

  // `first` stays the first by step, then trainer, then id: the same whatever the number of servers and workers.
  void NoteOffender(const Offender& offender);
  // A message for table `table` is refused because of this gradient; the OutOfRange that says so.
  absl::Status NoteRejected(const std::string& table, const Offender& offender);
  // The same for a step that is refused because a row's finite gradients add up to an infinity, first with this one.
  absl::Status NoteRejectedSum(const std::string& table, const Offender& offender);
  void Merge(const ValueGuardStatistics& other);
};

// The id of the first of `count` gradient rows with a NaN or an infinity. `ids` u64[count] at any alignment.
std::optional<size_t> FindNonFinite(const WireRows& gradients, size_t count, uint32_t dim);
bool AllFinite(absl::Span<const float> values);
// The same for one row's weights and slots, as tables and files have them.
bool AllFinite(const RowLayout& layout, const char* values);
// Says why no checkpoint may have a row.
inline constexpr char kNotFinite[] = "has a weight or optimizer state that is not finite (NaN or infinity)";

// Numbers that are not finite become 0.
void ZeroNonFinite(absl::Span<float> values);

}  // namespace tandem::ps
