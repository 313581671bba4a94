// A table for a terminal: lines of cells under headings, in columns that are as wide as their
// widest cell. Numbers are aligned to the right. Cells may hold any text, also names from files
// that anybody may have written: what a terminal would obey is escaped.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::report {

class TextTable {
 public:
  enum Align { RIGHT, LEFT };
  struct Column {
    std::string heading;
    Align align = RIGHT;
    size_t width = 0;  // at least; for lines that are printed before the next one is known
  };
  explicit TextTable(std::vector<Column> columns, size_t indent = 2);

  // Adds a line. Absent cells at its end are empty.
  // REQUIRES: there are no more cells than columns.
  void Add(std::vector<std::string> cells);

  // Returns the lines that were added since the last call, the first time under the headings.
  // Columns are two blanks apart, or one where that makes the lines fit `max_columns`. If they
  // still do not fit, the cells of the first column lose their middle, down to kLeastColumns.
  std::string TakeLines(size_t max_columns);

 private:
  static constexpr size_t kLeastColumns = 22;

  size_t WidthWith(size_t gap) const;
  std::string LineOf(const std::vector<std::string>& cells) const;

  std::vector<Column> columns_;  // their widths grow with the cells
  std::vector<std::vector<std::string>> lines_;
  const size_t indent_;
  size_t gap_ = 2;
};

// The columns that a terminal takes for `text`: none for a combining mark, two for a wide symbol,
// one for any other.
// REQUIRES: `text` is UTF-8.
size_t ColumnsOf(std::string_view text);

// Cuts the middle out of `text`, so that it takes at most `columns` (at least 4). ".." marks the
// cut.
std::string Shortened(const std::string& text, size_t columns);

}  // namespace tandem::report
