#include "trainer/report/page/page.h"

#include "absl/strings/str_cat.h"
#include "trainer/report/page/markup.h"

namespace tandem::report {

namespace {

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
)";

constexpr char kStyle[] = R"(<style>
body { margin: 0 auto; max-width: 1200px; padding: 16px; font: 16px/1.5 sans-serif; color: #1a1d21; background: #fff; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 28px 0 8px; border-bottom: 1px solid #8886; }
h3 { font-size: 1rem; margin: 16px 0 0; overflow-wrap: anywhere; }
p { max-width: 46rem; margin: 8px 0; overflow-wrap: anywhere; }
.note { font-size: 0.85rem; opacity: 0.8; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr)); gap: 20px 24px; align-items: start; }
figure { margin: 0; min-width: 0; break-inside: avoid; }
figcaption { font-weight: bold; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; }
.wide { overflow-x: auto; margin: 8px 0 16px; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 3px 14px 3px 0; border-bottom: 1px solid #8884; text-align: left; vertical-align: top; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
@media (prefers-color-scheme: dark) {
  body { color: #e4e6e8; background: #15181c; }
  .s0 { stroke: #4aa8e0; } .s1 { stroke: #f08a5d; } .s2 { stroke: #3fc79b; } .s3 { stroke: #bd93f9; }
  .s4 { stroke: #d9a441; } .s5 { stroke: #f178b6; } .s6 { stroke: #9db8cf; } .s7 { stroke: #a9c957; }
  .f0 { fill: #4aa8e0; } .f1 { fill: #f08a5d; } .f2 { fill: #3fc79b; } .f3 { fill: #bd93f9; }
  .f4 { fill: #d9a441; } .f5 { fill: #f178b6; } .f6 { fill: #9db8cf; } .f7 { fill: #a9c957; }
}
@media print {
  body { color: #000; background: #fff; font-size: 10pt; max-width: none; padding: 0; print-color-adjust: exact; }
  .charts { grid-template-columns: 1fr 1fr; }
  .wide { overflow: visible; }
  table { font-size: 8pt; }
  td, th { padding-right: 8px; }
  td:not(:first-child) { white-space: normal; overflow-wrap: anywhere; }
  tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
</style>
)";

}  // namespace

void Page::AddSection(std::string_view heading) {
  absl::StrAppend(&body_, "<h2>", Escaped(heading), "</h2>\n");
}

void Page::AddParagraph(std::string_view text) {
  absl::StrAppend(&body_, "<p>", Escaped(text), "</p>\n");
}

void Page::AddNote(std::string_view text) {
  absl::StrAppend(&body_, "<p class=\"note\">", Escaped(text), "</p>\n");
}

void Page::AddCharts(const std::vector<Chart>& charts) {
  body_ += "<div class=\"charts\">\n";
  for (const Chart& chart : charts) {
    absl::StrAppend(&body_, "<figure>\n<figcaption>", Escaped(chart.title), "</figcaption>\n",
                    ChartSvg(chart), "</figure>\n");
  }
  body_ += "</div>\n";
}

void Page::AddTable(const PageTable& table) {
  if (!table.caption.empty()) absl::StrAppend(&body_, "<h3>", Escaped(table.caption), "</h3>\n");
  body_ += "<div class=\"wide\">\n<table>\n";
  std::vector<std::string> headings;
  for (const PageColumn& column : table.columns) headings.push_back(column.heading);
  body_ += "<thead>\n";
  Row(table, headings, "th");
  body_ += "</thead>\n<tbody>\n";
  for (const std::vector<std::string>& cells : table.rows) Row(table, cells, "td");
  body_ += "</tbody>\n</table>\n</div>\n";
}

void Page::Row(const PageTable& table, const std::vector<std::string>& cells, const char* element) {
  body_ += "<tr>";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    absl::StrAppend(&body_, "<", element, table.columns[i].number ? " class=\"n\">" : ">",
                    i < cells.size() ? Escaped(cells[i]) : "", "</", element, ">");
  }
  body_ += "</tr>\n";
}

std::string Page::Html() const {
  const std::string title = Escaped(title_);
  return absl::StrCat(kHead, "<title>", title, "</title>\n", kStyle, "</head>\n<body>\n<h1>", title,
                      "</h1>\n", body_, "</body>\n</html>\n");
}

}  // namespace tandem::report
