// The titles of a log's items, from a file with tabs between its columns: the first column of a
// line is an item's id as in the log, the last is its title. Blank lines, CR LF, a byte-order mark
// and empty titles are accepted.
// Thread rule: pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/interactions.h"

namespace tandem::data {

struct Titles {
  std::vector<std::string> of_item;  // [num_items + 1], UTF-8; place 0 is empty
  int64_t num_missing = 0;  // items that occur in the log and have no line; their titles are empty
  int64_t num_unknown = 0;  // with mapped ids: lines of items that the log lacks, left out
  FileDigest source = {};
};

// Reads the titles of the log's catalogue. `ids` are those of the log, null if they are numbers.
// NotFound for a missing file. DataLoss, naming PATH:LINE, for an item twice, a number above
// log.num_items and a title that is not UTF-8.
absl::StatusOr<Titles> ReadTitles(const std::string& path, const Interactions& log,
                                  const MappedIds* ids);

// The words of a title: its runs of letters, marks and digits (Unicode's categories), case folded.
// REQUIRES: the title is UTF-8.
std::vector<std::string> WordsOf(std::string_view title);

}  // namespace tandem::data
