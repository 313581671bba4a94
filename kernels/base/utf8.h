// UTF-8 (RFC 3629), one symbol (a Unicode code point) at a time, and text of others made fit to be shown. Decoding is
// strict: overlong forms, surrogates, numbers above U+10FFFF and cut sequences are faults, so that every text has one
// reading. Pure functions, callable from any thread.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

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

bool IsUtf8(std::string_view text);

// The text as an error shows what it quotes, with every byte that a reader would not see or a terminal would obey as an
// escape: \n, \t, \r, \xe9 for a control character or a byte that is not UTF-8, \u00a0 for a blank that is no space, for
// what has no width and for what changes the direction of writing. A backslash stays, as most are parts of names.
std::string Printable(std::string_view text);
// The same for a whole message, whose line ends stay.
std::string PrintableLines(std::string_view text);

}  // namespace tandem
