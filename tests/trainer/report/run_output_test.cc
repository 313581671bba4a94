// The files of a run's folder.
#include "trainer/report/run_output.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

#include "tests/support/temp_folder.h"

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
    for (const char* name : {"summary.json", "trace.json"}) folder.Write(name, "of the older run");
    const auto output = RunOutput::Create(folder.path(), LogFormat::JSON);
    ASSERT_TRUE(output.ok());
    for (const char* name : {"summary.json", "trace.json"})
      EXPECT_TRUE(std::filesystem::exists(folder / name)) << "it may yet be refused";
    ASSERT_TRUE((resumes ? (*output)->BeginAfter(2) : (*output)->BeginAnew()).ok());
    for (const char* name : {"summary.json", "trace.json"})
      EXPECT_FALSE(std::filesystem::exists(folder / name)) << name << resumes;
  }
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
