#include "trainer/data/text/text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "trainer/data/text/symbol_reader.h"
#include "trainer/data/text_file.h"

namespace tandem::data {
namespace {

absl::StatusOr<int64_t> CountSymbols(const std::string& path, std::string_view content) {
  SymbolReader reader(content);
  int64_t count = 0;
  while (reader.Next()) ++count;
  if (!reader.fault().empty()) {
    return absl::DataLossError(
        absl::StrCat(Printable(path), ":", reader.line(), ": ", reader.fault()));
  }
  return count;
}

Vocabulary VocabularyOf(std::string_view content, int64_t num_symbols) {
  absl::flat_hash_set<char32_t> distinct;
  SymbolReader reader(content);
  for (int64_t i = 0; i < num_symbols; ++i) distinct.insert(*reader.Next());
  std::u32string sorted(distinct.begin(), distinct.end());
  std::sort(sorted.begin(), sorted.end());
  return Vocabulary(std::move(sorted));
}

absl::Status CheckLength(const std::string& path, std::string_view part, size_t length,
                         int64_t max_length) {
  if (static_cast<int64_t>(length) > max_length) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      Printable(path), ": the text is too short: its ", std::string(part), " part has ", length,
      " known symbols, a window and its next symbol need ", max_length + 1,
      "; give a longer text, a smaller max_length or another data.train_fraction"));
}

}  // namespace

// Decodes the bytes three times, which costs less than keeping four bytes for each symbol.
absl::StatusOr<Text> ReadText(const std::string& path, double train_fraction, int64_t max_length) {
  TANDEM_CHECK(0 < train_fraction && train_fraction < 1) << train_fraction;
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  ASSIGN_OR_RETURN(const int64_t num_symbols, CountSymbols(path, content));
  const auto num_train = static_cast<int64_t>(train_fraction * static_cast<double>(num_symbols));
  Text text;
  text.source = DigestOf(content);
  text.vocabulary = VocabularyOf(content, num_train);
  text.train.reserve(num_train);
  text.valid.reserve(num_symbols - num_train);
  SymbolReader reader(content);
  for (int64_t i = 0; i < num_symbols; ++i) {
    const std::optional<int32_t> number = text.vocabulary.Find(*reader.Next());
    if (number.has_value()) {
      (i < num_train ? text.train : text.valid).push_back(*number);
    } else {
      ++text.num_unseen;
    }
  }
  RETURN_IF_ERROR(CheckLength(path, "training", text.train.size(), max_length));
  RETURN_IF_ERROR(CheckLength(path, "validation", text.valid.size(), max_length));
  return text;
}

}  // namespace tandem::data
