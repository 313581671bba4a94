#include "trainer/data/id_map.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"

namespace tandem::data {

uint64_t IdMap::Add(std::string_view id) {
  const auto [found, is_new] = numbers_.try_emplace(std::string(id), ids_.size() + 1);
  if (is_new) ids_.emplace_back(id);
  return found->second;
}

uint64_t IdMap::Find(std::string_view id) const {
  const auto found = numbers_.find(std::string(id));
  return found == numbers_.end() ? 0 : found->second;
}

const std::string& IdMap::IdOf(uint64_t number) const {
  TANDEM_CHECK(1 <= number && number <= ids_.size()) << number << " of " << ids_.size();
  return ids_[number - 1];
}

std::string IdMap::Lines() const {
  std::string lines;
  for (const std::string& id : ids_) absl::StrAppend(&lines, id, "\n");
  return lines;
}

absl::StatusOr<IdMap> IdMap::FromLines(std::string_view lines) {
  IdMap map;
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    if (end == std::string_view::npos)
      return absl::DataLossError("item ids: the last line has no end");
    const std::string_view id = lines.substr(0, end);
    const uint64_t number = map.size() + 1;
    if (id.empty() || map.Add(id) != number) {
      return absl::DataLossError(absl::StrCat("item ids: line ", number, ": `", Printable(id),
                                              "` is empty or comes twice"));
    }
    lines.remove_prefix(end + 1);
  }
  return map;
}

}  // namespace tandem::data
