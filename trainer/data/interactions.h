// Interaction logs from text: which user touched which items, in which order. Two formats:
// SEQUENCES (`user item item ...`, one user per line) and PAIRS (`user item` per line,
// chronological per user). Space or tab separates fields. CR LF, blank lines, a UTF-8 byte-order
// mark and a missing last newline are accepted. Any other deviation is an error that names
// PATH:LINE and the column: NotFound for a missing file, DataLoss for all other causes.
// Thread rule: the readers are pure functions of the file; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/checked_file.h"
#include "trainer/data/id_map.h"
#include "trainer/data/jagged.h"

namespace tandem::data {

// Leave-one-out takes a user's last item as the test target and the item before it as the
// validation target. A user with fewer than kMinEvaluationItems items is not evaluated. A user with
// fewer than kMinTrainItems items is not trained on.
inline constexpr size_t kMinEvaluationItems = 3;  // one item before the validation target
inline constexpr size_t kMinTrainItems = 4;       // plus one pair of an input and its target

// Row i of `items` is the chronological history of users[i] (its id in the file). "User index"
// below means i.
struct Interactions {
  std::vector<uint64_t> users;
  Jagged items;
  // Ids are 1..num_items: the catalogue limit, or the largest id if there is no limit.
  uint64_t num_items = 0;
  FileDigest source = {};  // the file's
};

// The numbers of users that leave-one-out takes.
struct UserCounts {
  int64_t all = 0, evaluated = 0, trained = 0;
  int64_t most_items = 0;  // the most items of one user
};
UserCounts CountUsers(const Interactions& interactions);

// Fixed candidates that a user's target is ranked among: row i belongs to users[i] of the log.
struct Negatives {
  Jagged lists;
  FileDigest source = {};
};

// The ids of files whose ids may be any text without blanks. Interactions then hold the ids'
// numbers.
struct MappedIds {
  IdMap items, users;
  bool closed = false;  // the catalogue is a checkpoint's: an item outside it is an error
};

// `catalogue_limit` is the largest allowed id; 0: no limit. With `ids` there is no limit, and new
// ids are added to `ids`. Users keep the order of their lines; a second line of a user is an error.
absl::StatusOr<Interactions> ReadSequences(const std::string& path, uint64_t catalogue_limit,
                                           MappedIds* ids = nullptr);

// Users are ordered by their first line; the lines of one user need not be adjacent.
absl::StatusOr<Interactions> ReadPairs(const std::string& path, uint64_t catalogue_limit,
                                       MappedIds* ids = nullptr);

// Reads fixed negatives (`user item item ...`). Every user must have a line. Lines of users outside
// the log are checked and dropped. Errors: an id above interactions.num_items; an id twice in one
// line; an id that is the user's own validation or test target, because the target would compete
// with itself. With `ids` (those of the log), an item outside the log is added to the catalogue,
// unless the catalogue is closed.
absl::StatusOr<Negatives> ReadNegatives(const std::string& path, const Interactions& interactions,
                                        MappedIds* ids = nullptr);

}  // namespace tandem::data
