#include "trainer/report/page/page.h"

#include <gtest/gtest.h>

#include "kernels/base/utf8.h"
#include "trainer/report/page/markup.h"

namespace tandem::report {
namespace {

std::string HostilePage() {
  const std::string evil = "</title><script>alert('1')</script>&\"\xff\n";
  Page page(evil);
  page.AddSection(evil);
  page.AddParagraph(evil);
  page.AddNote(evil);
  Chart chart{.title = evil, .x = {.title = evil}, .y = {.title = evil}, .series = {}};
  chart.series.push_back({evil, SeriesKind::LINE, {{.x = 1, .y = 1, .note = evil}, {2, 2}}});
  chart.series.push_back({evil, SeriesKind::LEVEL, {{.y = 1}}});
  page.AddCharts({chart, Chart{.title = evil, .x = {}, .y = {}, .series = {}}});
  chart.categories = {evil, evil, evil};
  chart.series[0].kind = SeriesKind::BARS;
  page.AddCharts({chart});
  page.AddTable({evil, {{evil}, {evil, true}}, {{evil, "1"}, {evil}}});
  return page.Html();
}

TEST(PageTest, NothingIsFetchedAndNothingRuns) {
  const std::string html = HostilePage();
  for (const char* part : {"http:", "https:", "<script", "src=", "href=", "url(", "@import",
                           "<link", "<iframe", "<img", "<object", "onload", "javascript:"})
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  EXPECT_NE(html.find("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">"),
            std::string::npos);
}

TEST(PageTest, TheHeadSaysWhatBrowsersNeed) {
  const std::string html = Page("t").Html();
  EXPECT_EQ(html.rfind("<!DOCTYPE html>\n<html lang=\"en\">", 0), 0u);
  for (const char* part : {"<meta charset=\"utf-8\">", "name=\"viewport\"", "@media print",
                           "prefers-color-scheme: dark", "<title>t</title>"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
}

TEST(PageTest, AllTextIsEscaped) {
  const std::string html = HostilePage();
  EXPECT_EQ(html.find("alert('"), std::string::npos);
  EXPECT_TRUE(IsUtf8(html));
  EXPECT_NE(html.find("&lt;/title&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"
                      "\\xff\\n"),
            std::string::npos);
}

TEST(PageTest, NumbersAreAlignedAndWideTablesHaveABox) {
  Page page("t");
  page.AddTable({"", {{"name"}, {"value", true}}, {{"a", "1"}, {"b"}}});
  EXPECT_NE(page.Html().find("<div class=\"wide\">\n<table>\n<thead>\n"
                             "<tr><th>name</th><th class=\"n\">value</th></tr>\n</thead>\n<tbody>\n"
                             "<tr><td>a</td><td class=\"n\">1</td></tr>\n"
                             "<tr><td>b</td><td class=\"n\"></td></tr>\n</tbody>\n</table>"),
            std::string::npos);
}

TEST(MarkupTest, FittedCutsTheMiddleBetweenSymbols) {
  EXPECT_EQ(Fitted("short", 5), "short");
  EXPECT_EQ(Fitted("abcdefgh", 5), "ab…gh");
  EXPECT_EQ(Fitted("äöüäöüäö", 4), "ä…äö");
  EXPECT_EQ(Fitted("a\nb", 10), "a\\nb");
}

}  // namespace
}  // namespace tandem::report
