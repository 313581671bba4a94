#include "trainer/data/saved_catalogue.h"

#include <charconv>

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace tandem::data {

std::string CatalogueLines(const std::vector<int64_t>& training_counts,
                           const std::vector<std::string>& titles) {
  std::string lines;
  for (size_t item = 1; item < training_counts.size(); ++item)
    absl::StrAppend(&lines, training_counts[item], "\t", titles.empty() ? "" : titles[item], "\n");
  return lines;
}

absl::StatusOr<SavedCatalogue> ParseCatalogue(std::string_view lines, uint64_t num_items) {
  SavedCatalogue catalogue{{0}, {""}};
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    int64_t count = -1;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), count);
    const bool whole = error == std::errc() && stop < line.data() + line.size() && *stop == '\t';
    if (!whole || count < 0 || !IsUtf8(line)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the saved catalogue's line ", catalogue.titles.size(), " is malformed"));
    }
    catalogue.training_counts.push_back(count);
    catalogue.titles.emplace_back(stop + 1, line.data() + line.size());
  }
  if (catalogue.titles.size() == num_items + 1) return catalogue;
  return absl::FailedPreconditionError(absl::StrCat("the saved catalogue has ",
                                                    catalogue.titles.size() - 1,
                                                    " items, the checkpoint ", num_items));
}

}  // namespace tandem::data
