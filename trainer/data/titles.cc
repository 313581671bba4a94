#include "trainer/data/titles.h"

#include <utf8proc.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "trainer/data/text_file.h"

namespace tandem::data {

namespace {

constexpr std::string_view kFormat = "item<TAB>title";

// The number of a line's item; 0 for an item that the log lacks.
absl::StatusOr<uint64_t> ItemOf(const LineReader& reader, const Interactions& log,
                                const MappedIds* ids) {
  const Field& field = reader.fields().front();
  if (ids != nullptr) {
    if (!IsUtf8(field.text)) return reader.Unexpected(kFormat, field);
    return ids->items.Find(field.text);
  }
  ASSIGN_OR_RETURN(const uint64_t item, reader.ParseId(field, "item", kFormat));
  if (item == 0) return reader.Error("item id 0 is reserved for padding");
  if (item > log.num_items) {
    return reader.Error(
        absl::StrCat("item id ", item, " is above the catalogue's largest id ", log.num_items));
  }
  return item;
}

bool IsWordCharacter(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<Titles> ReadTitles(const std::string& path, const Interactions& log,
                                  const MappedIds* ids) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  LineReader reader(path, content);
  Titles titles;
  titles.source = DigestOf(content);
  titles.of_item.resize(log.num_items + 1);
  std::vector<int64_t> line_of(log.num_items + 1, 0);
  while (true) {
    ASSIGN_OR_RETURN(const bool more, reader.Next());
    if (!more) break;
    const size_t tab = reader.line().rfind('\t');
    if (tab == std::string_view::npos) return reader.UnexpectedEnd(kFormat);
    const std::string_view title = reader.line().substr(tab + 1);
    if (!IsUtf8(title)) {
      return reader.Error(absl::StrCat("the title at column ", tab + 2,
                                       " is not UTF-8: ", Printable(title.substr(0, 80))));
    }
    ASSIGN_OR_RETURN(const uint64_t item, ItemOf(reader, log, ids));
    if (item == 0) {
      ++titles.num_unknown;
      continue;
    }
    if (line_of[item] != 0) {
      return reader.Error(absl::StrCat("item ", Printable(reader.fields().front().text),
                                       " already has line ", line_of[item]));
    }
    line_of[item] = reader.line_number();
    titles.of_item[item] = std::string(title);
  }
  for (const uint64_t item : log.items.values) {
    if (line_of[item] != 0) continue;
    ++titles.num_missing;
    line_of[item] = -1;  // counted
  }
  return titles;
}

std::vector<std::string> WordsOf(std::string_view title) {
  std::vector<std::string> words;
  bool inside = false;
  while (!title.empty()) {
    const Utf8Symbol next = DecodeUtf8(title);
    title.remove_prefix(static_cast<size_t>(next.num_bytes));
    const bool belongs = IsWordCharacter(next.symbol);
    if (belongs && !inside) words.emplace_back();
    if (belongs) {
      const auto folded = utf8proc_tolower(static_cast<utf8proc_int32_t>(next.symbol));
      AppendUtf8(static_cast<char32_t>(folded), words.back());
    }
    inside = belongs;
  }
  return words;
}

}  // namespace tandem::data
