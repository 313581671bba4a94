// The catalogue of a log: the ids 1 .. num_items. A model has a row for each id. The largest id
// decides the size, so ids with gaps make the catalogue larger than the number of its items.
// Thread rule: pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "trainer/data/interactions.h"

namespace tandem::data {

// DataLoss if the catalogue of the log at `path` consists mostly of empty rows and wastes memory:
// more than 64 MB, and more than 16 ids for each id that occurs. `item_bytes` is the size of an
// id's row.
// REQUIRES: the largest id decides num_items. A catalogue given by the user has the size that the
// user says.
absl::Status CheckDenseIds(const std::string& path, const Interactions& interactions,
                           double item_bytes);

// InvalidArgument if a catalogue needs more memory than this machine has.
absl::Status CheckCatalogueFits(uint64_t num_items, double item_bytes);

}  // namespace tandem::data
