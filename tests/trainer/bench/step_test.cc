// `tandem bench step`: a tiny job of one timed step and its figures as JSON. Bad jobs are refused
// before any measurement.
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/bench/commands.h"

namespace tandem::bench {
namespace {

class BenchStepTest : public testing::Test {
 protected:
  BenchStepTest() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "to be or not ";
    text_ = folder_.Write("text", text);
    gpt_ = folder_.Write(
        "gpt.textproto",
        "name: \"a \\\"tiny\\\" gpt\"\n"
        "model { gpt { max_length: 8 layers: 1 heads: 1 dim: 8 } } train { batch_size: 4 }");
    recommender_ =
        folder_.Write("recommender.textproto",
                      "model { sequence_rec { layers: 1 } } tables { name: \"item\" dim: 8 }");
  }

  int Run(const bench::StepOptions& options) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = BenchStep(options, OurKinds());
    out_ = testing::internal::GetCapturedStdout();
    errors_ = testing::internal::GetCapturedStderr();
    return code;
  }

  std::string Json() const {
    std::ifstream file(folder_ / "bench.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const support::TempFolder folder_;
  std::string text_, gpt_, recommender_, out_, errors_;
};

TEST_F(BenchStepTest, OneStepOfAJobFileIsMeasuredAndWritten) {
  ASSERT_EQ(Run({.presets = {gpt_},
                 .threads = {1},
                 .dtypes = {"f32"},
                 .sets = {"data.path=" + text_, "device=CPU"},
                 .steps = 1,
                 .json = folder_ / "bench.json"}),
            0)
      << errors_;
  EXPECT_NE(out_.find("by kind:"), std::string::npos) << out_;
  double tokens = 0, samples = 0;
  ASSERT_EQ(
      std::sscanf(
          Json().c_str(),
          "[\n{\"job\":\"a \\\"tiny\\\" "
          "gpt\",\"threads\":1,\"dtype\":\"f32\",\"device\":\"CPU\",\"tokens_per_second\":%lf,"
          "\"samples_per_second\":%lf}\n]",
          &tokens, &samples),
      2)
      << Json();
  EXPECT_GT(samples, 0);
  EXPECT_NEAR(tokens / samples, 8, 1e-6);
}

TEST_F(BenchStepTest, WhatCannotBeMeasuredIsRefusedBeforeAnythingIs) {
  const auto expect_refused = [&](const std::vector<std::string>& presets,
                                  const std::vector<std::string>& dtypes, const std::string& data,
                                  const char* what) {
    EXPECT_EQ(Run({.presets = presets,
                   .threads = {1},
                   .dtypes = dtypes,
                   .sets = {"data.path=" + data},
                   .steps = 1,
                   .json = folder_ / "nowhere/bench.json"}),
              2);
    EXPECT_EQ(out_, "");
    EXPECT_NE(errors_.find(what), std::string::npos) << errors_;
  };
  const std::string log = folder_.Write("log", "1 1 2 3 4 5\n2 2 3 4 5 6\n3 3 4 5 6 1\n");
  expect_refused({"gpt", "sasrec"}, {"bf16"}, text_, "--dtype bf16 with sasrec");
  expect_refused({recommender_}, {"f32", "bf16"}, log, "--dtype bf16 with recommender");
  expect_refused({"gpt", gpt_}, {}, "", "data.path is required");
  expect_refused({gpt_}, {}, text_, "nowhere/bench.json");
}

}  // namespace
}  // namespace tandem::bench
