// The synchronous rule as scripted scenarios.
#include "ps/step_gate.h"

#include <functional>

#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

using Pull = StepGate::PullVerdict;
using Push = StepGate::PushVerdict;
using Round = StepGate::RoundVerdict;

CommitArgs Args(uint64_t step, float rate = 0.1f) { return {step, {{1, rate}, {2, rate}}, 0.5f, false}; }

class StepGateTest : public testing::Test {
 protected:
  StepGateTest() { gate_.SetTrainers(2); }
  void CommitBoth(uint64_t step) {
    ASSERT_EQ(*gate_.AdmitCommit(0, Args(step)), Round::WAIT);
    ASSERT_EQ(*gate_.AdmitCommit(1, Args(step)), Round::COMPLETE);
  }
  StepGate gate_;
};

TEST_F(StepGateTest, PullWaitsForTheStepBefore) {
  EXPECT_EQ(*gate_.AdmitPull(0), Pull::NOW);
  EXPECT_EQ(*gate_.AdmitPull(1), Pull::NOW);
  EXPECT_EQ(*gate_.AdmitPull(2), Pull::LATER);
  CommitBoth(1);
  EXPECT_EQ(*gate_.AdmitPull(2), Pull::NOW);
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPull(1).status())) << "rows before step 1 are gone";
}

TEST_F(StepGateTest, RepeatedPushIsKnownByTrainerSliceAndSequence) {
  EXPECT_EQ(*gate_.AdmitPush(0, 1, 3, 9), Push::NEW);
  EXPECT_EQ(*gate_.AdmitPush(0, 1, 3, 9), Push::REPEATED);
  EXPECT_EQ(*gate_.AdmitPush(1, 1, 3, 9), Push::NEW);
  EXPECT_EQ(*gate_.AdmitPush(0, 1, 4, 9), Push::NEW);
  EXPECT_EQ(*gate_.AdmitPush(0, 1, 3, 10), Push::NEW);
  CommitBoth(1);
  EXPECT_EQ(*gate_.AdmitPush(0, 1, 5, 11), Push::REPEATED) << "the step is applied";
  EXPECT_EQ(*gate_.AdmitPush(0, 2, 3, 9), Push::NEW);
}

TEST_F(StepGateTest, NobodyIsAheadByMoreThanOneStep) {
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitPush(0, 2, 0, 0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitCommit(0, Args(2)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitNorm(0, 2).status()));
  for (uint64_t step : {uint64_t{0}, uint64_t{1} << 32}) {
    EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitPush(0, step, 0, 0).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitPush(2, 1, 0, 0).status())) << "trainer 2 of 2";
}

TEST_F(StepGateTest, CommitNeedsEveryTrainerOnce) {
  EXPECT_EQ(*gate_.AdmitCommit(1, Args(1)), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitCommit(1, Args(1)), Round::WAIT) << "sent again";
  EXPECT_EQ(gate_.applied(), 0u);
  EXPECT_EQ(*gate_.AdmitCommit(0, Args(1)), Round::COMPLETE);
  EXPECT_EQ(gate_.applied(), 1u);
  EXPECT_EQ(*gate_.AdmitCommit(0, Args(1)), Round::PAST);
}

TEST_F(StepGateTest, DisagreementNamesBothAndForgetsTheStepsCommits) {
  EXPECT_EQ(*gate_.AdmitCommit(0, Args(1, 0.1f)), Round::WAIT);
  const absl::Status status = gate_.AdmitCommit(1, Args(1, 0.2f)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("trainer 0"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("trainer 1"), absl::string_view::npos) << status;
  EXPECT_EQ(*gate_.AdmitCommit(1, Args(1, 0.2f)), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitCommit(0, Args(1, 0.2f)), Round::COMPLETE);
}

TEST_F(StepGateTest, TheOrderOfRatesDoesNotMatter) {
  CommitArgs turned = Args(1);
  std::swap(turned.rates[0], turned.rates[1]);
  EXPECT_EQ(*gate_.AdmitCommit(0, Args(1)), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitCommit(1, turned), Round::COMPLETE);
}

TEST_F(StepGateTest, PushAfterOwnNormOrCommitIsRefusedButARepetitionIsNot) {
  EXPECT_EQ(*gate_.AdmitPush(0, 1, 0, 0), Push::NEW);
  EXPECT_EQ(*gate_.AdmitNorm(0, 1), Round::WAIT);
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPush(0, 1, 0, 1).status()));
  EXPECT_EQ(*gate_.AdmitPush(0, 1, 0, 0), Push::REPEATED);
  EXPECT_EQ(*gate_.AdmitPush(1, 1, 0, 0), Push::NEW);
  EXPECT_EQ(*gate_.AdmitCommit(1, Args(1)), Round::WAIT);
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPush(1, 1, 0, 1).status()));
}

TEST_F(StepGateTest, NormCompletesOncePerStep) {
  EXPECT_EQ(*gate_.AdmitNorm(0, 1), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitNorm(0, 1), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitNorm(1, 1), Round::COMPLETE);
  EXPECT_EQ(*gate_.AdmitNorm(1, 1), Round::WAIT) << "asked again: the answer is on its way or known";
  CommitBoth(1);
  EXPECT_EQ(*gate_.AdmitNorm(1, 1), Round::PAST);
  EXPECT_EQ(*gate_.AdmitNorm(1, 2), Round::WAIT);
}

TEST_F(StepGateTest, LoadedStepIsTheLastOneApplied) {
  ASSERT_TRUE(gate_.CheckLoad(7).ok());
  gate_.Load(7);
  EXPECT_EQ(gate_.applied(), 7u);
  EXPECT_TRUE(gate_.CheckLoad(7).ok()) << "the answer was lost and the load comes again";
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPull(7).status()));
  EXPECT_TRUE(gate_.CheckLoad(7).ok()) << "a refused call begins nothing";
  EXPECT_EQ(*gate_.AdmitPull(8), Pull::NOW);
  EXPECT_EQ(*gate_.AdmitPull(9), Pull::LATER);
  CommitBoth(8);
  EXPECT_EQ(gate_.applied(), 8u);
}

TEST_F(StepGateTest, LoadIsRefusedAfterAnyCallForAStep) {
  EXPECT_EQ(*gate_.AdmitPull(0), Pull::NOW);
  EXPECT_FALSE(gate_.AdmitPush(5, 1, 0, 0).ok());
  EXPECT_TRUE(gate_.CheckLoad(7).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.CheckLoad(uint64_t{1} << 32)));
  const std::vector<std::function<void(StepGate&)>> calls = {
      [](StepGate& gate) { gate.AdmitPull(1).IgnoreError(); }, [](StepGate& gate) { gate.AdmitPull(9).IgnoreError(); },
      [](StepGate& gate) { gate.AdmitPush(0, 1, 0, 0).IgnoreError(); },
      [](StepGate& gate) { gate.AdmitNorm(0, 1).IgnoreError(); },
      [](StepGate& gate) { gate.AdmitCommit(0, Args(1)).IgnoreError(); }};
  for (const auto& call : calls) {
    StepGate gate;
    gate.SetTrainers(2);
    call(gate);
    EXPECT_TRUE(absl::IsFailedPrecondition(gate.CheckLoad(7)));
  }
}

}  // namespace
}  // namespace tandem::ps
