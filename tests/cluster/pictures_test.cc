// The pictures of runs: each run leaves a page and TensorBoard's events, and a sweep leaves a page
// about all of its runs.
#include <filesystem>
#include <gtest/gtest.h>
#include <map>

#include "tests/cluster/small_job.h"
#include "tests/trainer/report/events/event_reader.h"

namespace tandem::cluster {
namespace {

namespace fs = std::filesystem;

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

class PicturesTest : public testing::Test {
 protected:
  // The floor of "test/hr@10" in summary.json as pages write it; "" if there is none.
  std::string Floor(const std::string& out) const {
    const std::string summary = job_.Read(out + "/summary.json");
    const size_t column = summary.find("\"references\":{\"popularity\":{");
    if (column == std::string::npos) return "";
    const std::string name = "\"hr@10\":";
    const size_t place = summary.find(name, column);
    char text[32];
    std::snprintf(text, sizeof text, "%.4f", std::stod(summary.substr(place + name.size())));
    return text;
  }
  Arguments SweepOf(const Arguments& more) const {
    return Arguments{"sweep",
                     job_.job_path(),
                     "--local",
                     "--set",
                     "data.path=" + job_.log_path(),
                     "--set",
                     "train.max_steps=4",
                     "--out",
                     job_.Path("sweep")} +
           more;
  }
  size_t NumRuns() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(job_.Path("sweep")))
      count += entry.path().filename() == "summary.json" ? 1 : 0;
    return count;
  }

  SmallJob job_;
};

TEST_F(PicturesTest, EveryRunLeavesAPageWithItsFloorsAndEvents) {
  for (const Arguments& layout : {Arguments{"--local"}, {"--ps", "2", "--trainers", "2"}}) {
    const support::Ended ended = job_.Launch("run", layout + Arguments{"--overwrite"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(Has(ended.out, job_.Path("run") + "/report.html for a browser, "
                                                  "events.out.tfevents.* for TensorBoard"))
        << ended.out;
    const std::string page = job_.Read("run/report.html"), floor = Floor("run");
    EXPECT_TRUE(Has(page, " completed: 20 steps")) << page.substr(0, 6000);
    ASSERT_NE(floor, "");
    EXPECT_TRUE(Has(page, "(popularity " + floor)) << floor;
    EXPECT_TRUE(Has(page, "<td>train.max_steps</td><td>20</td>"));
    EXPECT_TRUE(Has(page, "<td>version</td><td>tandem "));
    const auto shown = report::ShownScalars(job_.Path("run"));
    ASSERT_EQ(shown.count("train/loss"), 1u);
    EXPECT_EQ(shown.at("train/loss").size(), job_.Losses("run").size());
  }
}

TEST_F(PicturesTest, ARunThatFailsLeavesAPageToo) {
  const support::Ended ended = job_.Launch(
      "run", {"--local", "--set", "optimizer.learning_rate=1e30", "--set", "train.max_steps=20"});
  ASSERT_EQ(ended.exit_code, 70) << ended.err;
  EXPECT_TRUE(Has(job_.Read("run/report.html"), " has failed: "));
}

TEST_F(PicturesTest, ASweepGoesOnWhereItEndedAndAveragesItsSeeds) {
  const Arguments grid{"--grid", "model.dropout=0,0.5", "--seeds"};
  support::Ended ended = job_.Run(SweepOf(grid + Arguments{"1"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(NumRuns(), 2u);
  const auto first = fs::last_write_time(job_.Path("sweep/dropout=0/seed-1/summary.json"));
  ended = job_.Run(SweepOf(grid + Arguments{"1..2"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(NumRuns(), 4u);
  EXPECT_TRUE(Has(ended.out, "run 1 of 4: dropout=0/seed-1 is already complete\n")) << ended.out;
  EXPECT_EQ(fs::last_write_time(job_.Path("sweep/dropout=0/seed-1/summary.json")), first);
  for (const char* group : {"dropout=0 (2 seeds)", "dropout=0.5 (2 seeds)"}) {
    EXPECT_TRUE(Has(ended.out, group)) << ended.out;
    EXPECT_TRUE(Has(job_.Read("sweep/report.html"), group));
  }
  ended = job_.Run(SweepOf(grid + Arguments{"1..2", "--set", "train.batch_size=15"}));
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_TRUE(Has(ended.err, "is of another sweep: train.batch_size was 30 and is now 15"))
      << ended.err;
}

TEST_F(PicturesTest, AWrongSweepStartsNothing) {
  const std::map<std::string, Arguments> wrong{
      {"unknown field \"dropot\"", {"--grid", "model.dropot=0,1", "--seeds", "1..2"}},
      {"are the same run", {"--grid", "model.dropout=0.1,0.10"}},
      {"model.dropout", {"--grid", "model.dropout=0,7"}},
      {"--seeds 2..1; allowed", {"--grid", "model.dropout=0,0.1", "--seeds", "2..1"}},
      {"a sweep has --grid", {}}};
  for (const auto& [words, arguments] : wrong) {
    const support::Ended ended = job_.Run(SweepOf(arguments));
    EXPECT_EQ(ended.exit_code, 2) << words;
    EXPECT_TRUE(Has(ended.err, words)) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_FALSE(fs::exists(job_.Path("sweep")));
  }
}

}  // namespace
}  // namespace tandem::cluster
