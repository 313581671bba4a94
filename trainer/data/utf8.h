// UTF-8 (RFC 3629): one symbol, a Unicode code point, at a time. Strict: overlong forms, surrogates, numbers above
// U+10FFFF and cut sequences are faults, so that every text has one reading. Pure functions, callable from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::data {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct Utf8Symbol {
  char32_t symbol = 0;
  int num_bytes = 0;
  const char* fault = nullptr;  // why there is no symbol; then num_bytes is 0
};

// The symbol at the start of `bytes`. REQUIRES: not empty.
Utf8Symbol DecodeUtf8(std::string_view bytes);

// REQUIRES: a code point, no surrogate.
void AppendUtf8(char32_t symbol, std::string& text);

// The symbols of a text one after another, the same for any writer's system: a byte-order mark at the start is dropped,
// CR and CRLF become LF. Thread rule: one thread per reader.
class SymbolReader {
 public:
  // REQUIRES: `text` outlives the reader.
  explicit SymbolReader(std::string_view text);

  // None at the end of the text and at a fault.
  std::optional<char32_t> Next();

  // "invalid UTF-8 at byte offset N: why (0xAB 0xCD)", or empty. Offsets count from 0, with the byte-order mark.
  const std::string& fault() const { return fault_; }
  // Lines that have begun; they end with LF, CR or CRLF.
  int64_t line() const { return line_; }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::string fault_;
};

}  // namespace tandem::data
