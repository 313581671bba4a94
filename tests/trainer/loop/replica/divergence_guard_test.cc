// Numbers that are not finite, under both policies of train.non_finite.
#include "trainer/loop/replica/divergence_guard.h"

#include <gtest/gtest.h>

#include "tests/support/temp_folder.h"

namespace tandem::loop {
namespace {

class DivergenceGuardTest : public testing::Test {
 protected:
  DivergenceGuard MakeGuard(Train::NonFinite policy, report::RunOutput* output = nullptr) {
    Train train;
    train.set_non_finite(policy);
    return DivergenceGuard(train, &optimizer_, output);
  }

  sparse::StepOptimizer optimizer_{
      {.dense = {.learning_rate = 0.5}, .tables = {}}, nullptr, nullptr};
};

TEST_F(DivergenceGuardTest, StopEndsTheRunAndNamesTheCheckpointThatStands) {
  DivergenceGuard guard = MakeGuard(Train::STOP);
  const absl::Status first = guard.Decide(3, "loss is NaN");
  EXPECT_EQ(first.code(), absl::StatusCode::kOutOfRange);
  for (const char* words : {"step 3: loss is NaN; learning rate 0.5", "train.non_finite=SKIP",
                            "no checkpoint was written before"})
    EXPECT_NE(first.message().find(words), absl::string_view::npos) << first;
  guard.set_saved_step(2);
  const absl::Status second = guard.Decide(3, "loss is NaN");
  EXPECT_NE(second.message().find("the checkpoint of step 2 stands"), absl::string_view::npos)
      << second;
  EXPECT_EQ(guard.num_skipped(), 0);
}

TEST_F(DivergenceGuardTest, SkippedStepsAreCountedAndTheFirstIsNoted) {
  const support::TempFolder folder;
  const auto output = report::RunOutput::Create(folder / "out", report::LogFormat::TEXT).value();
  DivergenceGuard guard = MakeGuard(Train::SKIP, output.get());
  testing::internal::CaptureStdout();
  for (int64_t step = 3; step <= 5; ++step) EXPECT_TRUE(guard.Decide(step, "loss is NaN").ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "step 3 is skipped: loss is NaN; later ones are counted\n");
  EXPECT_EQ(guard.num_skipped(), 3);
}

TEST_F(DivergenceGuardTest, WeightsThatAreNotFiniteEndTheRunAlsoWhereStepsMayBeSkipped) {
  const absl::Status ended = MakeGuard(Train::SKIP).End(4, "parameter w is not finite");
  EXPECT_EQ(ended.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ended.message().find("train.non_finite=SKIP"), absl::string_view::npos) << ended;
}

}  // namespace
}  // namespace tandem::loop
