#include "trainer/report/page/run_page.h"

#include <cmath>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_folder.h"
#include "trainer/report/page/run_files.h"
#include "trainer/report/page/run_metrics.h"
#include "trainer/report/page/seed_groups.h"

namespace tandem::report {
namespace {

// A folder of runs with two logged steps and one evaluation.
class RunFolders {
 public:
  RunFiles Read(const std::string& name, const std::string& seed, double hit_rate,
                const std::string& more = "", const std::string& rate = "0.002") const {
    std::filesystem::create_directories(folder_ / name);
    folder_.Write(name + "/metrics.jsonl",
                  R"({"step":5,"epoch":1,"loss":2,"lr":)" + rate +
                      R"(,"samples_per_second":100,"compute_ms":3,"pull_ms":1,"staleness":0})"
                      "\n"
                      R"({"step":10,"epoch":1,"loss":1,"lr":0.001,"samples_per_second":300})"
                      "\n");
    folder_.Write(name + "/evaluations.jsonl",
                  R"({"step":10,"epoch":1,"train/loss":1.5,"best":true,"metrics":{"valid/hr@10":)" +
                      std::to_string(hit_rate) + "}}\n");
    folder_.Write(name + "/summary.json",
                  R"({"job":"toy <1>","status":"completed","seed":)" + seed +
                      R"(,"steps":10,"epochs":1,"best_step":10,"seconds":75.2,"layout":{"ps":2,)"
                      R"("dp":4},"metrics":{"test/hr@10":)" +
                      std::to_string(hit_rate) + R"(},"samples_per_second":200.4)" + more + "}\n");
    auto run = ReadRun(folder_ / name);
    EXPECT_TRUE(run.ok()) << run.status();
    return *std::move(run);
  }
  const support::TempFolder& folder() const { return folder_; }

 private:
  const support::TempFolder folder_;
};

std::string FirstParagraph(const std::string& html) {
  const size_t begin = html.find("<p>") + 3;
  return html.substr(begin, html.find("</p>") - begin);
}

// The first number after `name` in the last table that has it.
double NumberInTable(const std::string& html, const std::string& name) {
  const size_t row = html.rfind("<td>" + name + "</td>");
  if (row == std::string::npos) return kUnknown;
  const size_t cell = html.find("<td class=\"n\">", row) + std::string("<td class=\"n\">").size();
  return std::stod(html.substr(cell));
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(RunPageTest, TheFirstParagraphAgreesWithTheTable) {
  const RunFolders folders;
  const std::string html = RunPage({folders.Read(
      "run", "7", 0.123449, R"(,"references":{"popularity":{"hr@10":0.05},"other":{"x":1}})")});
  const std::string words = FirstParagraph(html);
  EXPECT_EQ(words,
            "The run of toy &lt;1&gt; completed: 10 steps, 1 epoch, 1 min 15 s, seed 7. Best "
            "evaluation (step 10): test/hr@10 0.1234 (popularity 0.0500). It trained at 200 "
            "samples/s.");
  EXPECT_EQ(NumberInTable(html, "metrics.test/hr@10"), 0.123449);
  EXPECT_EQ(NumberInTable(html, "steps"), 10);
  EXPECT_EQ(NumberInTable(html, "best_step"), 10);
  EXPECT_EQ(NumberInTable(html, "seed"), 7);
  EXPECT_EQ(NumberInTable(html, "samples_per_second"), 200.4);
  EXPECT_EQ(NumberInTable(html, "references.popularity.hr@10"), 0.05);
  EXPECT_TRUE(Has(html, "<td>dp 4, 2 parameter servers</td>"));
  EXPECT_TRUE(Has(html, "<title>popularity: 0.05</title>"));
}

TEST(RunPageTest, SettingsAreListedOrThoseThatDiffer) {
  const RunFolders folders;
  const std::string both = R"("train.batch_size":"64","data.path":"log.txt"})";
  const RunFiles one = folders.Read("a", "1", 0.1, R"(,"settings":{"seed":"1",)" + both),
                 other = folders.Read("b", "2", 0.1, R"(,"settings":{"seed":"2",)" + both);
  std::string html = RunPage({one});
  EXPECT_TRUE(Has(html, "<h2>Settings</h2>"));
  EXPECT_TRUE(Has(html, "<td>train.batch_size</td><td>64</td>"));
  html = RunPage({one, other});
  EXPECT_TRUE(Has(html, "<h2>Settings that differ</h2>"));
  EXPECT_TRUE(Has(html, "<tr><td>seed</td><td>1</td><td>2</td></tr>"));
  EXPECT_FALSE(Has(html, "train.batch_size"));
  EXPECT_TRUE(Has(html, "Settings that all runs have in common: 2."));
  EXPECT_FALSE(Has(RunPage({folders.Read("c", "1", 0.1)}), "Settings")) << "older runs have none";
}

TEST(RunPageTest, StalenessIsShownIfThereIsAny) {
  const RunFolders folders;
  RunFiles run = folders.Read("run", "1", 0.1);
  EXPECT_FALSE(Has(RunPage({run}), "Staleness"));
  run.steps[1].staleness = 3;
  EXPECT_TRUE(Has(RunPage({run}), "<figcaption>Staleness</figcaption>"));
}

TEST(RunPageTest, SeedsBecomeAMeanAndASpread) {
  const RunFolders folders;
  const std::vector<RunFiles> runs{folders.Read("s1", "1", 0.1), folders.Read("s2", "2", 0.2),
                                   folders.Read("s3", "3", 0.6)};
  const std::string html = RunPage(runs);
  // The mean of 0.1, 0.2 and 0.6 is 0.3; the squares sum to 0.14; sqrt(0.14 / 2) = 0.26458.
  EXPECT_EQ(
      FirstParagraph(html),
      "3 runs of toy &lt;1&gt; differ only in the seed (1, 2, 3): mean and standard deviation "
      "of test/hr@10 0.30 ± 0.26, from 0.10 to 0.60.");
  EXPECT_TRUE(Has(html,
                  "<td>test/hr@10</td><td class=\"n\">0.30</td><td class=\"n\">0.26</td>"
                  "<td class=\"n\">0.10</td><td class=\"n\">0.60</td>"));
  EXPECT_TRUE(Has(html, "<title>validation, step 10: 0.3 (0.1 to 0.6)</title>"));
  EXPECT_TRUE(Has(html, "<th class=\"n\">s1</th><th class=\"n\">s2</th><th class=\"n\">s3</th>"));
}

TEST(RunPageTest, OtherDifferencesAreNoSpread) {
  const RunFolders folders;
  std::vector<RunFiles> runs{folders.Read("a", "1", 0.1), folders.Read("b", "2", 0.2, "", "0.5")};
  EXPECT_EQ(GroupsOf(runs).size(), 2u) << "learning rates differ";
  EXPECT_EQ(FirstParagraph(RunPage(runs)),
            "2 runs are compared. Best is b with test/hr@10 0.2000. Last is a with test/hr@10 "
            "0.1000.");
  runs = {folders.Read("a", "1", 0.1), folders.Read("b", "1", 0.2), folders.Read("c", "2", 0.2)};
  EXPECT_EQ(GroupsOf(runs).size(), 3u) << "two runs with one seed differ in something unknown";
  runs = {folders.Read("a", "1", 0.1, R"(,"settings":{"dropout":0.1,"seed":1})"),
          folders.Read("b", "2", 0.2, R"(,"settings":{"dropout":0.2,"seed":2})"),
          folders.Read("c", "3", 0.3, R"(,"settings":{"dropout":0.2,"seed":3})")};
  const std::vector<RunGroup> groups = GroupsOf(runs);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].name, "b and 1 more seed");
}

TEST(RunPageTest, GroupsOfSeedsStandInOneTable) {
  const RunFolders folders;
  const std::vector<RunFiles> runs{folders.Read("x/s1", "1", 0.1), folders.Read("x/s2", "2", 0.3),
                                   folders.Read("y/s1", "1", 0.5, "", "0.5")};
  const std::string html = RunPage(runs);
  EXPECT_TRUE(Has(html,
                  "<th>runs that differ only in the seed</th><th class=\"n\">runs</th>"
                  "<th class=\"n\">test/hr@10</th>"));
  EXPECT_TRUE(Has(html,
                  "<td>x (2 seeds)</td><td class=\"n\">2</td>"
                  "<td class=\"n\">0.20 ± 0.14</td>"));
  EXPECT_TRUE(Has(html, "<td>y/s1</td><td class=\"n\">1</td><td class=\"n\">0.5000</td>"));
}

TEST(RunPageTest, ARunThatDidNotEndIsNamed) {
  const RunFolders folders;
  RunFiles run = folders.Read("a", "1", 0.1);
  std::filesystem::remove(folders.folder() / "a/summary.json");
  run = *ReadRun(folders.folder() / "a");
  EXPECT_EQ(FirstParagraph(RunPage({run}))
                .rfind("The run has no summary: it still runs, or it was "
                       "killed. Its last record is of step 10.",
                       0),
            0u);
  const std::string words = FirstParagraph(RunPage({run, folders.Read("b", "2", 0.2)}));
  EXPECT_TRUE(Has(words, "Not complete: a (no summary).")) << words;
}

TEST(RunFilesTest, UnexpectedContentHoldsNothing) {
  const support::TempFolder folder;
  folder.Write("metrics.jsonl",
               "{\"step\":20,\"loss\":null,\"skipped\":true}\n[1]\n{\"step\":\"x\"}\nbroken\n"
               "{\"step\":10,\"loss\":\"text\",\"staleness\":{}}\n{\"step\":3");
  folder.Write("evaluations.jsonl", "{\"step\":1,\"metrics\":[1]}\n");
  folder.Write(
      "summary.json",
      R"({"job":5,"metrics":{"a":"b","c":1e3},"layout":7,"deep":{"a":{"b":{"c":{"d":1}}}},)"
      R"("list":[1,2,[3]],"references":[1],"seed":18446744073709551615})");
  const auto run = ReadRun(folder.path());
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->steps.size(), 2u);
  EXPECT_EQ(run->steps[0].step, 10) << "ascending";
  EXPECT_TRUE(std::isnan(run->steps[0].loss) && std::isnan(run->steps[0].staleness));
  EXPECT_TRUE(run->steps[1].skipped);
  EXPECT_EQ(run->num_unread_lines, 4u);
  EXPECT_EQ(run->metrics, (std::map<std::string, double>{{"c", 1000}}));
  EXPECT_EQ(run->Figure("seed"), "18446744073709551615");
  EXPECT_EQ(run->Figure("list"), "1, 2, ...");
  EXPECT_EQ(run->Figure("deep.a.b.c"), "...");
  const std::string html = RunPage({*run});
  EXPECT_TRUE(Has(html,
                  "Logged steps that were left out, because the loss or a gradient was not "
                  "finite: 1."));
  EXPECT_TRUE(Has(html, "Lines of the run&#39;s files that are no records: 4."));
}

TEST(RunFilesTest, AFolderWithoutARunIsRefused) {
  const support::TempFolder folder;
  for (const std::string& path : {folder.path(), folder / "none"}) {
    const auto run = ReadRun(path);
    EXPECT_EQ(run.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(Has(std::string(run.status().message()), path)) << run.status();
  }
  folder.Write("summary.json", std::string(100000, '['));
  EXPECT_EQ(ReadRun(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
  std::filesystem::remove(folder / "summary.json");
  // Opening a pipe that nobody writes would wait for ever.
  ASSERT_EQ(mkfifo((folder / "metrics.jsonl").c_str(), 0600), 0);
  EXPECT_EQ(ReadRun(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SeedGroupsTest, NamesAreWhatDiffersBetweenTheFolders) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(ShortNames({"/tmp/out/run1/"}), Names({"run1"}));
  EXPECT_EQ(ShortNames({"out/run1", "out/run2"}), Names({"run1", "run2"}));
  EXPECT_EQ(ShortNames({"out/a/run", "./out/b/c/run"}), Names({"a", "b/c"}));
  EXPECT_EQ(ShortNames({"out/run", "out/run"}), Names({"run", "run #2"}));
  EXPECT_EQ(ShortNames({"a/x/a", "a/a"}), Names({"x", "a/a"}));
  EXPECT_EQ(ShortNames({"/", "/"}), Names({"/", "/ #2"}));
}

TEST(SeedGroupsTest, TheSpreadIsThatOfASample) {
  const Spread spread = SpreadOf({2, 4, kUnknown, 4, 10});
  EXPECT_EQ(spread.count, 4u);
  EXPECT_EQ(spread.mean, 5);
  EXPECT_DOUBLE_EQ(spread.deviation, std::sqrt(36.0 / 3));  // 9 + 1 + 1 + 25
  EXPECT_EQ(spread.low, 2);
  EXPECT_EQ(spread.high, 10);
  EXPECT_TRUE(std::isnan(SpreadOf({3}).deviation));
  EXPECT_TRUE(std::isnan(SpreadOf({}).mean));
}

TEST(SeedGroupsTest, TextsShowTwoDigitsOfTheDeviation) {
  const SpreadTexts texts = TextsOf({5, 5814.5, 5380.7, 6099.3, 267.6});
  EXPECT_EQ(texts.mean + " " + texts.deviation, "5814 268");
  EXPECT_EQ(TextsOf({5, 3, 3, 3, 0}).mean, "3");
  EXPECT_EQ(TextsOf({5, 0.05407, 0.05, 0.06, 0.000921}).mean, "0.05407");
}

}  // namespace
}  // namespace tandem::report
