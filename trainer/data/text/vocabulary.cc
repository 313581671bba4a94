#include "trainer/data/text/vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"
#include "trainer/data/text/symbol_reader.h"

namespace tandem::data {

absl::StatusOr<Vocabulary> Vocabulary::FromSymbols(std::string_view symbols) {
  std::u32string decoded;
  for (size_t at = 0; at < symbols.size();) {
    const Utf8Symbol next = DecodeUtf8(symbols.substr(at));
    if (next.fault != nullptr) {
      return absl::DataLossError(
          absl::StrCat("vocabulary: invalid UTF-8 at byte offset ", at, ": ", next.fault));
    }
    decoded += next.symbol;
    at += next.num_bytes;
  }
  if (decoded.empty()) return absl::DataLossError("vocabulary: no symbols");
  std::u32string sorted = decoded;
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end()) {
    return absl::DataLossError(
        absl::StrCat("vocabulary: code point ", static_cast<uint32_t>(*twice), " occurs twice"));
  }
  return Vocabulary(std::move(decoded));
}

Vocabulary::Vocabulary(std::u32string symbols) : symbols_(std::move(symbols)) {
  for (const char32_t symbol : symbols_) {
    const bool is_new = numbers_.emplace(symbol, static_cast<int32_t>(numbers_.size())).second;
    TANDEM_CHECK(is_new) << "symbol " << static_cast<uint32_t>(symbol) << " occurs twice";
  }
}

std::string Vocabulary::Symbols() const {
  std::string text;
  for (const char32_t symbol : symbols_) AppendUtf8(symbol, text);
  return text;
}

std::optional<int32_t> Vocabulary::Find(char32_t symbol) const {
  const auto found = numbers_.find(symbol);
  return found == numbers_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

absl::StatusOr<Vocabulary::Encoded> Vocabulary::Encode(std::string_view text) const {
  Encoded encoded;
  SymbolReader reader(text);
  while (const std::optional<char32_t> symbol = reader.Next()) {
    if (const std::optional<int32_t> number = Find(*symbol)) {
      encoded.numbers.push_back(*number);
    } else {
      ++encoded.num_unseen;
    }
  }
  if (!reader.fault().empty()) return absl::InvalidArgumentError(reader.fault());
  return encoded;
}

std::string Vocabulary::Decode(absl::Span<const int64_t> numbers) const {
  std::string text;
  for (const int64_t number : numbers) {
    TANDEM_CHECK(0 <= number && number < size()) << number << " of " << size();
    AppendUtf8(symbols_[number], text);
  }
  return text;
}

}  // namespace tandem::data
