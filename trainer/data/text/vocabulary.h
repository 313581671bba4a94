// The symbols that a character language model knows, numbered from 0. Converts text to numbers and
// back. Invariant: no symbol occurs twice, so numbers and symbols are one to one.
// Thread rule: a value; many threads may read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem::data {

class Vocabulary {
 public:
  Vocabulary() = default;
  // `symbols` is in the form of Symbols(): UTF-8, in the order of their numbers. DataLoss if it is
  // not a vocabulary.
  static absl::StatusOr<Vocabulary> FromSymbols(std::string_view symbols);
  // REQUIRES: no symbol twice.
  explicit Vocabulary(std::u32string symbols);

  int64_t size() const { return static_cast<int64_t>(symbols_.size()); }
  std::string Symbols() const;
  std::optional<int32_t> Find(char32_t symbol) const;

  // A text encoded like a file of ReadText: no byte-order mark, line ends are LF. Unknown symbols
  // are left out and counted.
  struct Encoded {
    std::vector<int64_t> numbers;
    int64_t num_unseen = 0;
  };
  // InvalidArgument if `text` is not UTF-8.
  absl::StatusOr<Encoded> Encode(std::string_view text) const;
  // REQUIRES: numbers in [0, size()).
  std::string Decode(absl::Span<const int64_t> numbers) const;

 private:
  std::u32string symbols_;
  absl::flat_hash_map<char32_t, int32_t> numbers_;
};

}  // namespace tandem::data
