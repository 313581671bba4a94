#include "trainer/data/text/symbol_reader.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace tandem::data {
namespace {

std::string Hex(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) {
    absl::StrAppend(&hex, hex.empty() ? "0x" : " 0x",
                    absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
  }
  return hex;
}

}  // namespace

SymbolReader::SymbolReader(std::string_view text) : text_(text) {
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) at_ = kByteOrderMark.size();
}

std::optional<char32_t> SymbolReader::Next() {
  if (at_ == text_.size() || !fault_.empty()) return std::nullopt;
  const Utf8Symbol next = DecodeUtf8(text_.substr(at_));
  if (next.fault != nullptr) {
    fault_ = absl::StrCat("invalid UTF-8 at byte offset ", at_, ": ", next.fault, " (",
                          Hex(text_.substr(at_, 4)), ")");
    return std::nullopt;
  }
  at_ += next.num_bytes;
  if (next.symbol != '\r' && next.symbol != '\n') return next.symbol;
  if (next.symbol == '\r' && at_ < text_.size() && text_[at_] == '\n') ++at_;
  ++line_;
  return U'\n';
}

}  // namespace tandem::data
