// The catalogue of a log: the ids 1 .. num_items, of which a model has a row each. The largest id decides its size, so
// ids that are not numbered one after another make it larger than its items are many. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "trainer/data/interactions.h"

namespace tandem::data {

// DataLoss where the largest id of the log at `path` makes a catalogue of mostly empty rows, so large that the memory is
// worth a word: more than 64 MB, and more than 16 ids for each that occurs. `item_bytes` is what an id takes.
// REQUIRES: the largest id decides num_items; a catalogue that the user gave is as large as the user says.
absl::Status CheckDenseIds(const std::string& path, const Interactions& interactions, double item_bytes);

// InvalidArgument where a catalogue needs more memory than this machine has.
absl::Status CheckCatalogueFits(uint64_t num_items, double item_bytes);

}  // namespace tandem::data
