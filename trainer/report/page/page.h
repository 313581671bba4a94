// A page for a browser, in one file: headings, paragraphs, charts and tables. It runs no script and
// fetches nothing: its policy forbids the browser to. It is readable on a telephone, in the dark
// and on paper.
// Thread rule: one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trainer/report/page/chart.h"

namespace tandem::report {

struct PageColumn {
  std::string heading;
  bool number = false;  // aligned to the right
};

struct PageTable {
  std::string caption;  // empty: none
  std::vector<PageColumn> columns;
  std::vector<std::vector<std::string>> rows;  // absent cells at a row's end are empty
};

// Adds its parts in the order of the calls. All text may hold anything: it is escaped.
class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  void AddSection(std::string_view heading);
  void AddParagraph(std::string_view text);
  void AddNote(std::string_view text);  // small print
  // Side by side where there is room.
  void AddCharts(const std::vector<Chart>& charts);
  // A table wider than the page scrolls in its own box.
  void AddTable(const PageTable& table);

  std::string Html() const;

 private:
  void Row(const PageTable& table, const std::vector<std::string>& cells, const char* element);

  const std::string title_;
  std::string body_;
};

}  // namespace tandem::report
