#include "trainer/report/events/run_events.h"

#include <filesystem>
#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"
#include "tests/trainer/report/events/event_reader.h"

namespace tandem::report {
namespace {

StepRecord RecordOf(int64_t step, double loss) {
  StepRecord record{.step = step, .logged = true, .loss = loss};
  record.time = 1795957591;
  return record;
}

size_t NumFiles(const std::string& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(RunEventsTest, AStepIsItsScalarsAndAnEvaluationItsFigures) {
  const support::TempFolder folder;
  auto events = RunEvents::BeginAnew(folder.path());
  ASSERT_TRUE(events.ok()) << events.status();
  StepRecord record = RecordOf(5, 0.5);
  record.learning_rate = 0.25;
  record.grad_norm = 2;
  record.samples_per_second = 1000;
  record.tokens_per_second = 8000;
  record.compute_ms = 3;
  record.collective_ms = 4;
  record.pull_ms = 5;
  record.push_ms = 6;
  record.staleness = 7;
  ASSERT_TRUE((*events)->AddStep(record).ok());
  ASSERT_TRUE((*events)->AddEvaluation(5, {{"valid/hr@10", 0.125}}).ok());
  const std::map<std::string, float> wanted{{"train/loss", 0.5f},
                                            {"train/lr", 0.25f},
                                            {"train/grad_norm", 2},
                                            {"speed/samples_per_second", 1000},
                                            {"speed/tokens_per_second", 8000},
                                            {"step_ms/compute", 3},
                                            {"step_ms/collectives", 4},
                                            {"step_ms/pull", 5},
                                            {"step_ms/push", 6},
                                            {"staleness", 7},
                                            {"valid/hr@10", 0.125f}};
  std::map<std::string, float> found;
  for (const auto& [tag, values] : ShownScalars(folder.path())) {
    ASSERT_EQ(values.size(), 1u) << tag << ": they are in the file while the run goes on";
    EXPECT_EQ(values.begin()->first, 5u) << tag;
    found[tag] = values.begin()->second;
  }
  EXPECT_EQ(found, wanted);
  record.mfu = 0.5;
  ASSERT_TRUE((*events)->AddStep(record).ok());
  EXPECT_EQ(ShownScalars(folder.path()).count("speed/mfu"), 1u);
}

TEST(RunEventsTest, RepeatedStepsOfARunThatGoesOnShowOnce) {
  const support::TempFolder folder;
  {
    auto events = RunEvents::BeginAnew(folder.path());
    ASSERT_TRUE(events.ok()) << events.status();
    for (int64_t step = 1; step <= 4; ++step)
      ASSERT_TRUE((*events)->AddStep(RecordOf(step, 10)).ok());
    ASSERT_TRUE((*events)->AddEvaluation(4, {{"valid/mrr", 0.5}}).ok());
  }
  // Both goings-on fall into the same second as the beginning.
  for (const double loss : {20.0, 30.0}) {
    auto events = RunEvents::BeginAfter(folder.path(), 2);
    ASSERT_TRUE(events.ok()) << events.status();
    for (int64_t step = 3; step <= 4; ++step)
      ASSERT_TRUE((*events)->AddStep(RecordOf(step, loss)).ok());
  }
  EXPECT_EQ(NumFiles(folder.path()), 3u);
  auto shown = ShownScalars(folder.path());
  EXPECT_EQ(shown["train/loss"],
            (std::multimap<uint64_t, float>{{1, 10}, {2, 10}, {3, 30}, {4, 30}}));
  EXPECT_TRUE(shown["valid/mrr"].empty()) << "the evaluation is to come again";
}

TEST(RunEventsTest, ANewRunRemovesTheEventsOfAnother) {
  const support::TempFolder folder;
  folder.Write("events.out.tfevents.0000000001.other", "old");
  folder.Write("metrics.jsonl", "kept");
  ASSERT_TRUE(RunEvents::BeginAnew(folder.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "events.out.tfevents.0000000001.other"));
  EXPECT_TRUE(std::filesystem::exists(folder / "metrics.jsonl"));
  EXPECT_EQ(NumFiles(folder.path()), 2u);
}

TEST(RunEventsTest, AClockThatWasSetBackOrdersFilesAsTheRunWent) {
  const support::TempFolder folder;
  folder.Write("events.out.tfevents.9000000000.other", "");
  ASSERT_TRUE(RunEvents::BeginAfter(folder.path(), 2).ok());
  EXPECT_TRUE(std::filesystem::exists(folder / "events.out.tfevents.9000000001.tandem"));
}

}  // namespace
}  // namespace tandem::report
