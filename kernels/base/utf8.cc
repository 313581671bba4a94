#include "kernels/base/utf8.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tandem {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

struct SymbolRange {
  char32_t first, last;
};

// Blanks other than the space, symbols without width, and symbols that change the direction of
// writing. From Unicode 15: the categories Zs, Zl, Zp and Cf, as far as they occur in texts.
constexpr std::array<SymbolRange, 14> kUnseen = {{{0x7F, 0xA0},
                                                  {0xAD, 0xAD},
                                                  {0x600, 0x605},
                                                  {0x61C, 0x61C},
                                                  {0x1680, 0x1680},
                                                  {0x180E, 0x180E},
                                                  {0x2000, 0x200F},
                                                  {0x2028, 0x202F},
                                                  {0x205F, 0x206F},
                                                  {0x3000, 0x3000},
                                                  {0xFE00, 0xFE0F},
                                                  {0xFEFF, 0xFEFF},
                                                  {0xFFF9, 0xFFFB},
                                                  {0xE0000, 0xE0FFF}}};

bool IsUnseen(char32_t symbol) {
  if (symbol < 0x20) return true;
  for (const SymbolRange& range : kUnseen) {
    if (range.first <= symbol && symbol <= range.last) return true;
  }
  return false;
}

std::string ByteEscape(unsigned char byte) {
  return absl::StrCat("\\x", absl::Hex(byte, absl::kZeroPad2));
}

std::string EscapeOf(char32_t symbol) {
  switch (symbol) {
    case '\n':
      return "\\n";
    case '\t':
      return "\\t";
    case '\r':
      return "\\r";
    default:
      break;
  }
  if (symbol < 0x80) return ByteEscape(static_cast<unsigned char>(symbol));
  const auto number = static_cast<uint32_t>(symbol);
  return symbol > 0xFFFF ? absl::StrCat("\\U", absl::Hex(number, absl::kZeroPad8))
                         : absl::StrCat("\\u", absl::Hex(number, absl::kZeroPad4));
}

std::string Shown(std::string_view text, bool keep_line_ends) {
  std::string shown;
  while (!text.empty()) {
    const Utf8Symbol next = DecodeUtf8(text);
    const int num_bytes = next.fault != nullptr ? 1 : next.num_bytes;
    if (next.fault != nullptr) {
      shown += ByteEscape(static_cast<unsigned char>(text[0]));
    } else if (IsUnseen(next.symbol) && !(keep_line_ends && next.symbol == '\n')) {
      shown += EscapeOf(next.symbol);
    } else {
      shown += text.substr(0, num_bytes);
    }
    text.remove_prefix(num_bytes);
  }
  return shown;
}

}  // namespace

Utf8Symbol DecodeUtf8(std::string_view bytes) {
  const auto fault = [](const char* why) { return Utf8Symbol{.fault = why}; };
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first < 0x80) return {.symbol = first, .num_bytes = 1};
  if (first < 0xC0) return fault("a continuation byte without a start");
  if (first >= 0xF8) return fault("a byte that no sequence begins with");
  const int num_bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t symbol = first & (0x7F >> num_bytes);
  for (int i = 1; i < num_bytes; ++i) {
    if (static_cast<size_t>(i) == bytes.size()) return fault("the text ends inside a sequence");
    if (!IsContinuation(bytes[i])) return fault("a sequence is cut short");
    symbol = symbol << 6 | (static_cast<unsigned char>(bytes[i]) & 0x3F);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (symbol < kSmallest[num_bytes]) return fault("an overlong form");
  if (0xD800 <= symbol && symbol <= 0xDFFF) return fault("a surrogate");
  if (symbol > 0x10FFFF) return fault("a number above U+10FFFF");
  return {.symbol = symbol, .num_bytes = num_bytes};
}

void AppendUtf8(char32_t symbol, std::string& text) {
  TANDEM_CHECK(symbol <= 0x10FFFF && !(0xD800 <= symbol && symbol <= 0xDFFF))
      << static_cast<uint32_t>(symbol);
  const auto append = [&text](char32_t byte) { text += static_cast<char>(byte); };
  if (symbol < 0x80) return append(symbol);
  if (symbol < 0x800) {
    append(0xC0 | symbol >> 6);
  } else {
    if (symbol < 0x10000) {
      append(0xE0 | symbol >> 12);
    } else {
      append(0xF0 | symbol >> 18);
      append(0x80 | (symbol >> 12 & 0x3F));
    }
    append(0x80 | (symbol >> 6 & 0x3F));
  }
  append(0x80 | (symbol & 0x3F));
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Symbol next = DecodeUtf8(text);
    if (next.fault != nullptr) return false;
    text.remove_prefix(next.num_bytes);
  }
  return true;
}

std::string Printable(std::string_view text) { return Shown(text, false); }

std::string PrintableLines(std::string_view text) { return Shown(text, true); }

}  // namespace tandem
