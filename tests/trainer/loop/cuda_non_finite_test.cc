// Losses, gradients and optimizer state on a device that are not finite, also in steps that are
// launched as graphs.
#include <cmath>

#include "kernels/base/device.h"
#include "tests/trainer/loop/non_finite_run.h"

namespace tandem::loop {
namespace {

constexpr Device kFirstCard{DeviceKind::CUDA, 0};

class CudaNonFiniteTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
  }
};

TEST_F(CudaNonFiniteTest, ALossOrAGradientEndsTheRunNamingTheStep) {
  for (const auto& [kind, words] :
       {std::pair(FaultKind::LOSS, "step 3: loss is NaN; learning rate 0.01; "),
        std::pair(FaultKind::GRADIENT, "step 3: the gradient of ")}) {
    const FaultyResult result = RunWith(kGpt, {}, {.fault = {kind, 3}, .device = kFirstCard});
    ExpectDiverged(result, {words, "the checkpoint of step 2 stands"});
    EXPECT_EQ(result.checkpoints, std::vector<std::string>{"step-00000002"});
  }
}

TEST_F(CudaNonFiniteTest, ASkippedStepLeavesNothingBehind) {
  const FaultyResult without =
      RunWith(kGpt, {"train.non_finite=SKIP", "train.max_steps=2"}, {.device = kFirstCard});
  for (const FaultKind kind : {FaultKind::LOSS, FaultKind::GRADIENT}) {
    const FaultyResult skipped = RunWith(kGpt, {"train.non_finite=SKIP", "train.max_steps=3"},
                                         {.fault = {kind, 3}, .device = kFirstCard});
    ASSERT_TRUE(without.ok() && skipped.ok()) << skipped.ends[0];
    EXPECT_EQ(skipped.summary.params_hash, without.summary.params_hash);
    EXPECT_EQ(skipped.skipped, std::vector<int64_t>{3});
  }
}

TEST_F(CudaNonFiniteTest, StepsThatAreLaunchedAsGraphsAreSkippedToo) {
  // The first step throws the weights so far that no later loss is finite.
  const std::vector<std::string> sets{"train.non_finite=SKIP", "optimizer.learning_rate=1e15",
                                      "train.eval_every_steps=99"};
  std::vector<std::string> one = sets, many = sets;
  one.push_back("train.max_steps=1");
  many.push_back("train.max_steps=9");
  const FaultyResult first = RunWith(kGpt, one, {.device = kFirstCard}),
                     all = RunWith(kGpt, many, {.device = kFirstCard});
  ASSERT_TRUE(first.ok() && all.ok()) << all.ends[0];
  EXPECT_EQ(all.skipped.size(), 8u);
  EXPECT_EQ(all.summary.params_hash, first.summary.params_hash);
  EXPECT_EQ(all.checkpoints, std::vector<std::string>{}) << "no evaluation was finite";
}

TEST_F(CudaNonFiniteTest, OptimizerStateThatOverflowsIsNotEvaluatedNorSaved) {
  const FaultyResult result = RunWith(
      kGpt, {"train.max_steps=2"}, {.fault = {FaultKind::LARGE_GRADIENT, 2}, .device = kFirstCard});
  ExpectDiverged(result, {"step 2: parameter ", "#v is not finite"});
  EXPECT_EQ(result.checkpoints, std::vector<std::string>{});
}

}  // namespace
}  // namespace tandem::loop
