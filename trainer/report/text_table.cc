#include "trainer/report/text_table.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/utf8.h"

namespace tandem::report {

namespace {

struct SymbolRange {
  char32_t first, last;
};

// From Unicode 15, as far as texts use them: marks over the symbol before, and symbols of Asian
// scripts and pictures, which terminals show two columns wide.
constexpr SymbolRange kCombining[] = {
    {0x300, 0x36F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF}, {0xFE20, 0xFE2F}};
constexpr SymbolRange kWide[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},
                                 {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                                 {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
                                 {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

template <size_t kSize>
bool IsIn(char32_t symbol, const SymbolRange (&ranges)[kSize]) {
  return std::any_of(std::begin(ranges), std::end(ranges), [symbol](const SymbolRange& range) {
    return range.first <= symbol && symbol <= range.last;
  });
}

size_t SymbolColumns(char32_t symbol) {
  return IsIn(symbol, kCombining) ? 0 : IsIn(symbol, kWide) ? 2 : 1;
}

bool BeginsSymbol(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// The longest start, or end, of `text` that takes at most `columns`.
std::string_view Head(std::string_view text, size_t columns) {
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Symbol next = DecodeUtf8(text.substr(size));
    if (SymbolColumns(next.symbol) > columns) break;
    columns -= SymbolColumns(next.symbol);
    size += static_cast<size_t>(next.num_bytes);
  }
  return text.substr(0, size);
}

std::string_view Tail(std::string_view text, size_t columns) {
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (BeginsSymbol(text[begin]) && ColumnsOf(text.substr(begin)) <= columns)
      return text.substr(begin);
  }
  return "";
}

}  // namespace

size_t ColumnsOf(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Utf8Symbol next = DecodeUtf8(text);
    TANDEM_CHECK(next.fault == nullptr) << next.fault;
    columns += SymbolColumns(next.symbol);
    text.remove_prefix(static_cast<size_t>(next.num_bytes));
  }
  return columns;
}

std::string Shortened(const std::string& text, size_t columns) {
  if (ColumnsOf(text) <= columns) return text;
  const size_t head = columns / 2 - 1;
  return std::string(Head(text, head)) + ".." + std::string(Tail(text, columns - 2 - head));
}

TextTable::TextTable(std::vector<Column> columns, size_t indent)
    : columns_(std::move(columns)), indent_(indent) {
  std::vector<std::string> headings;
  for (const Column& column : columns_) headings.push_back(column.heading);
  Add(std::move(headings));
}

void TextTable::Add(std::vector<std::string> cells) {
  TANDEM_CHECK_LE(cells.size(), columns_.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i] = Printable(cells[i]);
    columns_[i].width = std::max(columns_[i].width, ColumnsOf(cells[i]));
  }
  lines_.push_back(std::move(cells));
}

size_t TextTable::WidthWith(size_t gap) const {
  size_t width = indent_ + gap * (columns_.size() - 1);
  for (const Column& column : columns_) width += column.width;
  return width;
}

std::string TextTable::TakeLines(size_t max_columns) {
  if (WidthWith(2) > max_columns && WidthWith(1) <= max_columns) gap_ = 1;
  const size_t width = WidthWith(gap_);
  size_t& first = columns_[0].width;
  if (width > max_columns && first > kLeastColumns)
    first -= std::min(width - max_columns, first - kLeastColumns);
  std::string text;
  for (const std::vector<std::string>& cells : lines_) text += LineOf(cells) + "\n";
  lines_.clear();
  return text;
}

std::string TextTable::LineOf(const std::vector<std::string>& cells) const {
  std::string line(indent_, ' ');
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string cell = i == 0 ? Shortened(cells[i], columns_[i].width) : cells[i];
    const std::string blanks(columns_[i].width - ColumnsOf(cell), ' ');
    if (i > 0) line.append(gap_, ' ');
    line += columns_[i].align == LEFT ? cell + blanks : blanks + cell;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace tandem::report
