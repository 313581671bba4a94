// The files of a run's folder.
#include "trainer/report/run_output.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "absl/time/clock.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/report/events/event_reader.h"

namespace tandem::report {
namespace {

std::string ReadWhole(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(RunOutputTest, RecordsHaveTheContractsFieldsAndNoNan) {
  const support::TempFolder folder;
  ::testing::internal::CaptureStdout();
  auto output = RunOutput::Create(folder.path(), LogFormat::JSON);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->BeginAnew().ok());
  StepRecord record{.step = 7, .total_steps = 10, .epoch = 2, .logged = true, .loss = 0.5};
  record.grad_norm = std::nan("");
  ASSERT_TRUE((*output)->AfterStep(record, absl::InfiniteFuture()).ok());
  RunSummary summary;
  summary.job = "a \"quoted\"\nname";
  summary.status = "completed";
  summary.params_hash = absl::MakeUint128(1, 2);
  ASSERT_TRUE((*output)->Finish(summary).ok());
  output->reset();
  ::testing::internal::GetCapturedStdout();
  std::stringstream metrics, result;
  metrics << std::ifstream(folder.path() + "/metrics.jsonl").rdbuf();
  result << std::ifstream(folder.path() + "/summary.json").rdbuf();
  for (const char* field :
       {"step", "epoch", "loss", "lr", "grad_norm", "samples_per_second", "tokens_per_second",
        "compute_ms", "collective_ms", "pull_ms", "push_ms", "staleness"}) {
    EXPECT_NE(metrics.str().find("\"" + std::string(field) + "\":"), std::string::npos) << field;
  }
  EXPECT_NE(metrics.str().find("\"grad_norm\":null"), std::string::npos);
  EXPECT_NE(result.str().find("\"job\":\"a \\\"quoted\\\"\\nname\""), std::string::npos)
      << result.str();
  EXPECT_NE(result.str().find("\"params_hash\":\"00000000000000010000000000000002\""),
            std::string::npos);
}

TEST(RunOutputTest, TheShareOfAPeakIsSaidWhereThePeakIsKnown) {
  for (const double mfu : {0.0, 0.413}) {
    const support::TempFolder folder;
    ::testing::internal::CaptureStdout();
    auto output = RunOutput::Create(folder.path(), LogFormat::TEXT);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE((*output)->BeginAnew().ok());
    StepRecord record{.step = 10, .total_steps = 10, .logged = true};
    record.mfu = mfu;
    ASSERT_TRUE((*output)->AfterStep(record, absl::InfiniteFuture()).ok());
    output->reset();
    const std::string printed = ::testing::internal::GetCapturedStdout();
    std::stringstream metrics;
    metrics << std::ifstream(folder.path() + "/metrics.jsonl").rdbuf();
    EXPECT_EQ(printed.find("MFU 41%") != std::string::npos, mfu > 0) << printed;
    EXPECT_EQ(metrics.str().find("\"mfu\":0.413") != std::string::npos, mfu > 0) << metrics.str();
    EXPECT_EQ(metrics.str().find("mfu") != std::string::npos, mfu > 0);
  }
}

TEST(RunOutputTest, AStepThatIsNotLoggedLeavesNothing) {
  const support::TempFolder folder;
  ::testing::internal::CaptureStdout();
  auto output = RunOutput::Create(folder.path(), LogFormat::JSON);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->BeginAnew().ok());
  StepRecord record{.step = 7, .total_steps = 10};
  ASSERT_TRUE((*output)->AfterStep(record, absl::InfiniteFuture()).ok());
  output->reset();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(ReadWhole(folder / "metrics.jsonl"), "");
}

TEST(RunOutputTest, ANewRunStartsWithoutTheCheckpointsOfAnother) {
  const support::TempFolder folder;
  std::filesystem::create_directories(folder.path() + "/checkpoints/step-00000900");
  const auto output = RunOutput::Create(folder.path(), LogFormat::JSON);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->BeginAnew().ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoints"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoints.removed"));
}

// The run was killed in the middle of a line. The rest of the line looks like an early step's.
TEST(RunOutputTest, ATornLastLineIsDroppedWhenTheRunGoesOn) {
  const support::TempFolder folder;
  const std::string whole = "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.4}\n";
  for (const char* name : {"metrics.jsonl", "evaluations.jsonl"})
    folder.Write(name, whole + "{\"step\":1");
  {
    const auto output = RunOutput::Create(folder.path(), LogFormat::JSON);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE((*output)->BeginAfter(2).ok());
  }
  for (const char* name : {"metrics.jsonl", "evaluations.jsonl"})
    EXPECT_EQ(ReadWhole(folder / name), whole) << name;
}

TEST(RunOutputTest, WhatAnOlderRunSaidOfItsEndGoesWhenARunBegins) {
  for (const bool resumes : {false, true}) {
    const support::TempFolder folder;
    for (const char* name : {"summary.json", "trace.json", "report.html"})
      folder.Write(name, "of the older run");
    const auto output = RunOutput::Create(folder.path(), LogFormat::JSON);
    ASSERT_TRUE(output.ok());
    for (const char* name : {"summary.json", "trace.json", "report.html"})
      EXPECT_TRUE(std::filesystem::exists(folder / name)) << "it may yet be refused";
    ASSERT_TRUE((resumes ? (*output)->BeginAfter(2) : (*output)->BeginAnew()).ok());
    for (const char* name : {"summary.json", "trace.json", "report.html"})
      EXPECT_FALSE(std::filesystem::exists(folder / name)) << name << resumes;
  }
}

TEST(RunOutputTest, ARunLeavesAPageAndEvents) {
  const support::TempFolder folder;
  ::testing::internal::CaptureStdout();
  auto output = RunOutput::Create(folder.path(), LogFormat::TEXT);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->BeginAnew().ok());
  StepRecord record{.step = 7, .total_steps = 10, .epoch = 2, .logged = true, .loss = 0.5};
  ASSERT_TRUE((*output)->AfterStep(record, absl::InfiniteFuture()).ok());
  EvaluationRecord evaluation;
  evaluation.step = 7;
  evaluation.metrics = {{"valid/mrr", 0.25}};
  ASSERT_TRUE((*output)->Evaluated(evaluation).ok());
  RunSummary summary;
  summary.job = "the job";
  summary.status = kCompleted;
  summary.steps = 7;
  summary.best_step = 7;
  summary.metrics = {{"valid/mrr", 0.25}};
  summary.references = {{"popularity", {{"mrr", 0.125}}}};
  ASSERT_TRUE((*output)->Finish(summary).ok());
  output->reset();
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed.find("no page"), std::string::npos) << printed;
  const std::string page = ReadWhole(folder / "report.html");
  EXPECT_NE(page.find("<p>The run of the job completed: 7 steps, "), std::string::npos) << page;
  EXPECT_NE(page.find("valid/mrr 0.2500 (popularity 0.1250)"), std::string::npos) << page;
  auto shown = ShownScalars(folder.path());
  EXPECT_EQ(shown["train/loss"], (std::multimap<uint64_t, float>{{7, 0.5}}));
  EXPECT_EQ(shown["valid/mrr"], (std::multimap<uint64_t, float>{{7, 0.25}}));
}

TEST(RunOutputTest, APictureThatCannotBeWrittenEndsNoRun) {
  const support::TempFolder folder;
  // Folders where the files should be.
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  for (int64_t seconds = now; seconds < now + 60; ++seconds)
    std::filesystem::create_directories(folder / EventFileName(seconds) + "/x");
  std::filesystem::create_directories(folder / "report.html/x");
  ::testing::internal::CaptureStdout();
  auto output = RunOutput::Create(folder.path(), LogFormat::TEXT);
  ASSERT_TRUE(output.ok());
  EXPECT_TRUE((*output)->BeginAnew().ok());
  StepRecord record{.step = 1, .total_steps = 10, .logged = true};
  EXPECT_TRUE((*output)->AfterStep(record, absl::InfiniteFuture()).ok());
  EXPECT_TRUE((*output)->Finish(RunSummary{}).ok());
  output->reset();
  const std::string printed = ::testing::internal::GetCapturedStdout();
  for (const char* note : {"TensorBoard will not see the rest of this run: cannot write ",
                           "this run has no page: cannot write "})
    EXPECT_NE(printed.find(note), std::string::npos) << printed;
}

TEST(RunOutputTest, AFolderThatCannotBeMadeIsAnErrorNamingIt) {
  const support::TempFolder folder;
  const std::string file = folder.Write("file", "x");
  const auto output = RunOutput::Create(file + "/out", LogFormat::JSON);
  EXPECT_EQ(output.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(output.status().message().find(file), std::string::npos);
}

}  // namespace
}  // namespace tandem::report
