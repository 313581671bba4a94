// Reads the symbols of a text one after another, in the same form for every system: it drops a
// byte-order mark at the start and turns CR and CRLF into LF. Decoding is strict
// (kernels/base/utf8.h).
// Thread rule: one thread per reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::data {

class SymbolReader {
 public:
  // REQUIRES: `text` outlives the reader.
  explicit SymbolReader(std::string_view text);

  // Returns nothing at the end of the text and at a fault.
  std::optional<char32_t> Next();

  // "invalid UTF-8 at byte offset N: why (0xAB 0xCD)", or empty. Offsets count from 0 and include
  // the byte-order mark.
  const std::string& fault() const { return fault_; }
  // The number of lines that have begun. Lines end with LF, CR or CRLF.
  int64_t line() const { return line_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::string fault_;
};

}  // namespace tandem::data
