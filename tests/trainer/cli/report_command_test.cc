#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/support/temp_folder.h"
#include "trainer/cli/commands.h"

namespace tandem::cli {
namespace {

std::string ReadWhole(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ReportCommandTest : public testing::Test {
 protected:
  std::string RunFolder(const std::string& name, int seed) const {
    std::filesystem::create_directories(folder_ / name);
    folder_.Write(name + "/metrics.jsonl", "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n");
    folder_.Write(name + "/summary.json", R"({"job":"toy","status":"completed","steps":2,"seed":)" +
                                              std::to_string(seed) +
                                              R"(,"metrics":{"test/mrr":0.5}})"
                                              "\n");
    return folder_ / name;
  }
  int CodeOf(const ReportOptions& options) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = Report(options);
    errors_ = testing::internal::GetCapturedStderr();
    printed_ = testing::internal::GetCapturedStdout();
    return code;
  }

  const support::TempFolder folder_;
  std::string errors_, printed_;
};

TEST_F(ReportCommandTest, AFinishedRunGetsItsPageAgain) {
  const std::string run = RunFolder("run", 1);
  EXPECT_EQ(CodeOf({{run}, ""}), 0) << errors_;
  EXPECT_EQ(printed_, "wrote " + run + "/report.html, a page about 1 run\n");
  EXPECT_NE(ReadWhole(run + "/report.html").find("The run of toy completed: 2 steps, seed 1."),
            std::string::npos);
}

TEST_F(ReportCommandTest, SeveralRunsAreLaidOverEachOther) {
  const std::string out = folder_ / "both.html";
  EXPECT_EQ(CodeOf({{RunFolder("a", 1), RunFolder("b", 2)}, out}), 0) << errors_;
  EXPECT_EQ(printed_, "wrote " + out + ", a page about 2 runs\n");
  EXPECT_NE(ReadWhole(out).find("2 runs of toy differ only in the seed (1, 2)"), std::string::npos);
}

TEST_F(ReportCommandTest, AllMistakesAreSaidAtOnceAndNothingIsWritten) {
  const std::string run = RunFolder("run", 1);
  std::filesystem::create_directories(folder_ / "empty");
  EXPECT_EQ(CodeOf({{run, folder_ / "none", folder_ / "empty"}, folder_ / "no/page.html"}), 2);
  EXPECT_EQ(errors_, "errors:\nthere is no folder " + (folder_ / "none") + "\nfolder " +
                         (folder_ / "empty") +
                         " holds no record of a run; give a folder that --out named, with "
                         "metrics.jsonl or summary.json\n--out " +
                         (folder_ / "no/page.html") + ": there is no folder " + (folder_ / "no") +
                         "\n");
  EXPECT_EQ(printed_, "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "no"));
  EXPECT_FALSE(std::filesystem::exists(run + "/report.html"));
}

TEST_F(ReportCommandTest, APageIsNoFolder) {
  EXPECT_EQ(CodeOf({{RunFolder("run", 1)}, folder_.path()}), 2);
  EXPECT_EQ(errors_, "error: --out " + folder_.path() + " is a folder; name a file in it\n");
}

}  // namespace
}  // namespace tandem::cli
