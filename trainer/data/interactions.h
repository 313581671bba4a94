// Interaction logs from text: who touched which items, in which order. Two formats, SEQUENCES (`user item item ...`, one
// user per line) and PAIRS (`user item` per line, chronological per user).
// Space or tab separates; CR LF, blank lines, a UTF-8 byte-order mark and a missing last newline are accepted. Anything
// else is an error that names PATH:LINE and the column: NotFound for a missing file, DataLoss for all other causes.
// The readers are pure functions of the file: call them from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/jagged.h"

namespace tandem::data {

// Row i of `items` is the chronological history of users[i] (its id in the file). "User index" below means i.
struct Interactions {
  std::vector<uint64_t> users;
  Jagged items;
  uint64_t num_items = 0;  // ids are 1..num_items: the catalogue limit, or the largest id where none was given
};

// `catalogue_limit` is the largest id allowed, 0 for none. Users keep the order of their lines; a second line is an error.
absl::StatusOr<Interactions> ReadSequences(const std::string& path, uint64_t catalogue_limit);

// Users stand in the order of their first line; the lines of one user need not be adjacent.
absl::StatusOr<Interactions> ReadPairs(const std::string& path, uint64_t catalogue_limit);

// Fixed negatives (`user item item ...`), row i for interactions.users[i]. Every user must have a line; lines of users
// that are not in the log are read, checked and dropped. Ids above interactions.num_items are errors.
absl::StatusOr<Jagged> ReadNegatives(const std::string& path, const Interactions& interactions);

}  // namespace tandem::data
