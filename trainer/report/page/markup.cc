#include "trainer/report/page/markup.h"

#include "absl/strings/str_replace.h"
#include "kernels/base/utf8.h"

namespace tandem::report {

namespace {

bool BeginsSymbol(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The byte at which symbol `number` begins.
size_t PlaceOf(std::string_view text, size_t number) {
  size_t place = 0;
  for (; place < text.size(); ++place) {
    if (BeginsSymbol(text[place]) && number-- == 0) break;
  }
  return place;
}

}  // namespace

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(
      Printable(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

size_t CountSymbols(std::string_view text) {
  size_t count = 0;
  for (char byte : text) count += BeginsSymbol(byte) ? 1 : 0;
  return count;
}

std::string Fitted(std::string_view text, size_t most) {
  const std::string shown = Printable(text);
  const size_t count = CountSymbols(shown);
  if (count <= most) return shown;
  const size_t head = (most - 1) / 2, tail = most - 1 - head;
  return shown.substr(0, PlaceOf(shown, head)) + "…" + shown.substr(PlaceOf(shown, count - tail));
}

}  // namespace tandem::report
