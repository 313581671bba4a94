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
#include "kernels/base/checked_file.h"
#include "trainer/data/id_map.h"
#include "trainer/data/jagged.h"

namespace tandem::data {

// Leave-one-out takes a user's last item as the test target and the one before as the validation target. A user with
// fewer items than these is not evaluated, or not trained on.
inline constexpr size_t kMinEvaluationItems = 3;  // one item of history before the validation target
inline constexpr size_t kMinTrainItems = 4;       // a pair of an input and its target besides

// Row i of `items` is the chronological history of users[i] (its id in the file). "User index" below means i.
struct Interactions {
  std::vector<uint64_t> users;
  Jagged items;
  uint64_t num_items = 0;  // ids are 1..num_items: the catalogue limit, or the largest id where none was given
  FileDigest source = {};  // of the file
};

// How many users leave-one-out takes.
struct UserCounts {
  int64_t all = 0, evaluated = 0, trained = 0;
  int64_t most_items = 0;  // of a user
};
UserCounts CountUsers(const Interactions& interactions);

// Fixed candidates beside which a user's target is ranked: row i is for users[i] of the log.
struct Negatives {
  Jagged lists;
  FileDigest source = {};
};

// The ids of files whose ids are any text without blanks. Interactions then hold their numbers.
struct MappedIds {
  IdMap items, users;
  bool closed = false;  // the catalogue is a checkpoint's: an item that it lacks is an error
};

// `catalogue_limit` is the largest id allowed, 0 for none. With `ids` there is no limit, and what
// is new is added there. Users keep the order of their lines; a second line is an error.
absl::StatusOr<Interactions> ReadSequences(const std::string& path, uint64_t catalogue_limit, MappedIds* ids = nullptr);

// Users stand in the order of their first line; the lines of one user need not be adjacent.
absl::StatusOr<Interactions> ReadPairs(const std::string& path, uint64_t catalogue_limit, MappedIds* ids = nullptr);

// Reads fixed negatives (`user item item ...`). Every user must have a line; lines of users that are not in the log are
// checked and dropped. Errors: an id above interactions.num_items, an id that a line has twice, and an id that is the
// user's own validation or test target, which would count as its own competitor.
// With `ids`, those of the log, an item that the log lacks is added to the catalogue, unless that is closed.
absl::StatusOr<Negatives> ReadNegatives(const std::string& path, const Interactions& interactions, MappedIds* ids = nullptr);

}  // namespace tandem::data
