// Decodes UTF-8 (RFC 3629), one symbol (a Unicode code point) at a time, and makes untrusted text
// printable. Decoding is strict: overlong forms, surrogates, numbers above U+10FFFF and truncated
// sequences are faults. So every text has one reading.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct Utf8Symbol {
  char32_t symbol = 0;
  int num_bytes = 0;
  const char* fault = nullptr;  // why there is no symbol; num_bytes is then 0
};

// Decodes the symbol at the start of `bytes`.
// REQUIRES: `bytes` is not empty.
Utf8Symbol DecodeUtf8(std::string_view bytes);

// REQUIRES: `symbol` is a code point and no surrogate.
void AppendUtf8(char32_t symbol, std::string& text);

bool IsUtf8(std::string_view text);

// Text for quoting in an error. Escapes every byte that is invisible or that a terminal would obey:
// - \n, \t, \r, and \xe9 for a control character or a byte that is not UTF-8;
// - \u00a0 for blanks other than the space, symbols without width, and symbols that change the
// direction of writing.
// A backslash stays, because most backslashes are parts of names.
std::string Printable(std::string_view text);
// Like Printable, for a whole message: line ends stay.
std::string PrintableLines(std::string_view text);

}  // namespace tandem
