#include "trainer/data/utf8.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tandem::data {
namespace {

bool IsContinuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    absl::StrAppend(&hex, hex.empty() ? "0x" : " 0x", absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
  }
  return hex;
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
  TANDEM_CHECK(symbol <= 0x10FFFF && !(0xD800 <= symbol && symbol <= 0xDFFF)) << static_cast<uint32_t>(symbol);
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

SymbolReader::SymbolReader(std::string_view text) : text_(text) {
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ = kByteOrderMark.size();
}

std::optional<char32_t> SymbolReader::Next() {
  if (at_ == text_.size() || !fault_.empty()) return std::nullopt;
  const Utf8Symbol next = DecodeUtf8(text_.substr(at_));
  if (next.fault != nullptr) {
    fault_ = absl::StrCat("invalid UTF-8 at byte offset ", at_, ": ", next.fault, " (", Hex(text_.substr(at_, 4)), ")");
    return std::nullopt;
  }
  at_ += next.num_bytes;
  if (next.symbol != '\r' && next.symbol != '\n') return next.symbol;
  if (next.symbol == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
  ++line_;
  return U'\n';
}

}  // namespace tandem::data
