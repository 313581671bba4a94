#include "trainer/bench/sync/report_page.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "trainer/bench/cost/profile.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/probes.h"
#include "trainer/bench/sync/winners.h"

namespace tandem::bench {
namespace {

// A quick sweep whose times are the model's.
std::vector<SyncResult> Sweep(const SyncLink& link = {}) {
  std::vector<SyncResult> results;
  const CostProfile costs = TypicalCosts();
  for (const SyncPoint& point : SyncPoints(link, /*quick=*/true)) {
    SyncResult& result = results.emplace_back();
    result.point = point;
    result.share = point.share();
    result.modelled = CostOf(point, costs);
    result.microseconds = result.modelled.seconds * 1e6;
    result.low = result.microseconds * 0.9;
    result.high = result.microseconds * 1.2;
    result.bytes_per_trainer = result.modelled.trainer_bytes;
    result.bytes_per_server = result.modelled.server_bytes;
  }
  return results;
}

SyncResult& ResultAt(std::vector<SyncResult>& results, SyncPoint::What what, uint64_t bytes,
                     double share, SyncPoint::Way way) {
  return *std::find_if(results.begin(), results.end(), [&](const SyncResult& result) {
    return result.point.what() == what && result.point.bytes() == bytes &&
           result.point.share() == share && result.point.way() == way;
  });
}

TEST(WinnersTest, NeighboursWithOneWinnerAreOneRange) {
  std::vector<SyncResult> results = Sweep();
  for (size_t i = 0; i < results.size(); i += 2) {
    results[i].microseconds = 100;      // ring
    results[i + 1].microseconds = 300;  // servers
  }
  const uint64_t kilo = 1 << 10, mega = 1 << 20;
  ResultAt(results, SyncPoint::DENSE, 4 * kilo, 1, SyncPoint::SERVERS).microseconds = 50;
  ResultAt(results, SyncPoint::DENSE, 16 * mega, 1, SyncPoint::SERVERS).microseconds = 1230;
  ResultAt(results, SyncPoint::TABLE, 16 * mega, 1e-3, SyncPoint::SERVERS).microseconds = 1;
  ResultAt(results, SyncPoint::TABLE, 16 * mega, 1e-2, SyncPoint::SERVERS).microseconds = 80;
  EXPECT_EQ(WinnersText(PairsOf(results), "shm"),
            "Over shared memory, with 2 trainers and 1 server, dense weights are synchronised "
            "faster by servers at 4 KB (2.0 times as fast), by the ring from 64 KB to 16 MB (3.0 "
            "to 12 times as fast). A table of 16 MB, by the share of its rows that a step uses, is "
            "synchronised faster by servers from 0.1 % to 1 % (1.2 to 100 times as fast), by the "
            "ring from 10 % to 100 % (3.0 times as fast).");
}

TEST(WinnersTest, ProbesAndPointsThatWereNotMeasuredDoNotCount) {
  std::vector<SyncResult> results = Sweep();
  const std::string before = WinnersText(PairsOf(results), "shm");
  SyncResult probe = results[0];
  probe.fitted = true;
  probe.microseconds = 1e9;
  results.insert(results.begin(), probe);
  EXPECT_EQ(WinnersText(PairsOf(results), "shm"), before);
  EXPECT_EQ(WinnersText(PairsOf(results), "tcp"), "");
  for (SyncResult& result : results) result.measured = false;
  EXPECT_EQ(WinnersText(PairsOf(results), "shm"), "");
}

// The cells of the rows of the page's last table.
std::vector<std::vector<std::string>> LastTable(const std::string& html) {
  std::vector<std::vector<std::string>> rows;
  const std::string table = html.substr(html.rfind("<table"));
  for (const absl::string_view row : absl::StrSplit(table, "<tr>")) {
    std::vector<std::string> cells;
    for (const absl::string_view cell : absl::StrSplit(row, "<td")) {
      if (cell.find("</td>") == absl::string_view::npos) continue;
      const size_t begin = cell.find('>') + 1;
      cells.emplace_back(cell.substr(begin, cell.find("</td>") - begin));
    }
    if (!cells.empty()) rows.push_back(std::move(cells));
  }
  return rows;
}

TEST(SyncReportTest, TheFirstParagraphAgreesWithTheTable) {
  const std::string html = SyncReport(Sweep(), TypicalCosts());
  const size_t begin = html.find("<p>") + 3;
  const std::string first = html.substr(begin, html.find("</p>", begin) - begin);
  std::map<std::string, std::map<std::string, double>> dense;  // bytes, way: us
  for (const auto& cells : LastTable(html)) {
    ASSERT_EQ(cells.size(), 20u);
    double microseconds = 0;
    if (cells[1] == "dense") {
      ASSERT_TRUE(absl::SimpleAtod(cells[8], &microseconds)) << cells[8];
      dense[cells[2]][cells[0]] = microseconds;
    }
  }
  ASSERT_EQ(dense.size(), 4u);
  // By typical costs a ring is faster at all sizes: the ratios are those of the table.
  double least = 1e9, most = 0;
  for (const auto& [bytes, ways] : dense) {
    const double ratio = ways.at("servers") / ways.at("ring");
    EXPECT_GT(ratio, 1) << bytes;
    least = std::min(least, ratio);
    most = std::max(most, ratio);
  }
  const size_t open = first.find("by the ring from 4 KB to 16 MB (");
  ASSERT_NE(open, std::string::npos) << first;
  const std::vector<std::string> words =
      absl::StrSplit(first.substr(open), absl::ByAnyChar(" ("), absl::SkipEmpty());
  double told_least = 0, told_most = 0;
  ASSERT_TRUE(absl::SimpleAtod(words[9], &told_least)) << words[9];
  ASSERT_TRUE(absl::SimpleAtod(words[11], &told_most)) << words[11];
  EXPECT_NEAR(told_least, least, 0.05 * least);
  EXPECT_NEAR(told_most, most, 0.05 * most);
}

TEST(SyncReportTest, NoRequestLeavesThePage) {
  const std::string html = SyncReport(Sweep({SyncPoint::CAPPED, 1e9}), TypicalCosts());
  for (const char* const text : {"<script", "<link", "<img", "<iframe", "src=", "href=", "url(",
                                 "@import", "http:", "//www"})
    EXPECT_EQ(absl::StrReplaceAll(html, {{"http://www.w3.org", ""}}).find(text), std::string::npos)
        << text;
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
}

TEST(SyncReportTest, LargerClustersAreMarkedAsModelled) {
  const std::string html = SyncReport(Sweep(), TypicalCosts());
  for (const char* const text :
       {"Larger clusters: modelled, not measured", "10 Gb/s: modelled, not measured",
        "400 Gb/s: modelled, not measured", ">1024</td>", ">64</td>", ">8</td>"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
}

TEST(SyncReportTest, APointThatWasNotMeasuredSaysSo) {
  std::vector<SyncResult> results = Sweep();
  results[0].measured = false;
  const auto rows = LastTable(SyncReport(results, TypicalCosts()));
  EXPECT_EQ(rows[0][8], "modelled");
  EXPECT_EQ(rows[0][9], "");
  EXPECT_NE(rows[1][8], "modelled");
}

}  // namespace
}  // namespace tandem::bench
