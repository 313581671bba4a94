// The synchronous rule as scripted scenarios.
#include "ps/step_gate.h"

#include <functional>

#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

using Pull = StepGate::PullVerdict;
using Round = StepGate::RoundVerdict;

CommitArgs Args(uint64_t step, float rate = 0.1f) { return {step, {{1, rate}, {2, rate}}, 0.5f, false}; }

ShardSet Shards(std::initializer_list<size_t> shards) {
  ShardSet set;
  for (size_t shard : shards) set.set(shard);
  return set;
}
const std::optional<Caller> kCaller = Caller{};
const ShardSet kNone, kShards = Shards({0, 700}), kMoreShards = Shards({0, 3, 700, 1023});

void ExpectRefused(const absl::Status& status, const char* words) {
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
}

class StepGateTest : public testing::Test {
 protected:
  StepGateTest() { gate_.SetTrainers(2); }
  void CommitBoth(uint64_t step) {
    ASSERT_EQ(*gate_.AdmitCommit({0}, Args(step)), Round::WAIT);
    ASSERT_EQ(*gate_.AdmitCommit({1}, Args(step)), Round::COMPLETE);
  }
  ShardSet Push(uint32_t trainer, uint64_t step, uint64_t sequence) {
    const auto fresh = gate_.AdmitPush({trainer}, step, sequence, kShards);
    EXPECT_TRUE(fresh.ok()) << fresh.status();
    return fresh.value_or(ShardSet().set());
  }
  StepGate gate_;
};

TEST_F(StepGateTest, PullWaitsForTheStepBefore) {
  EXPECT_EQ(*gate_.AdmitPull(kCaller, 0), Pull::NOW);
  EXPECT_EQ(*gate_.AdmitPull(kCaller, 1), Pull::NOW);
  EXPECT_EQ(*gate_.AdmitPull(kCaller, 2), Pull::LATER);
  CommitBoth(1);
  EXPECT_EQ(*gate_.AdmitPull(kCaller, 2), Pull::NOW);
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPull(kCaller, 1).status())) << "rows before step 1 are gone";
}

TEST_F(StepGateTest, RepeatedPushIsKnownByTrainerAndSequence) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  EXPECT_EQ(Push(0, 1, 9), kNone);
  EXPECT_EQ(Push(1, 1, 9), kShards);
  EXPECT_EQ(Push(0, 1, 10), kShards);
  EXPECT_EQ(*gate_.AdmitPush({0}, 1, 10, kMoreShards), kMoreShards & ~kShards) << "only what it did not have before";
  EXPECT_EQ(*gate_.AdmitPush({0}, 1, 10, kMoreShards), kNone);
  CommitBoth(1);
  EXPECT_EQ(Push(0, 1, 9), kNone) << "the step is applied";
  EXPECT_EQ(*gate_.AdmitPush({0}, 1, 10, kMoreShards), kNone);
  EXPECT_EQ(Push(0, 2, 11), kShards);
}

TEST_F(StepGateTest, PushThatWouldBeLostIsRefused) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  CommitBoth(1);
  ExpectRefused(gate_.AdmitPush({0}, 1, 10, kShards).status(), "push 10 of trainer 0 for step 1 is new, but step 1 is applied");
  ExpectRefused(gate_.AdmitPush({0}, 1, 8, kShards).status(), "is new, but step 1 is applied");
  ExpectRefused(gate_.AdmitPush({0}, 1, 9, kMoreShards).status(), "is new, but step 1 is applied");
  ExpectRefused(gate_.AdmitPush({0}, 2, 9, kShards).status(), "has a sequence that another step had");
  EXPECT_EQ(Push(0, 2, 300), kShards);
  CommitBoth(2);
  ExpectRefused(gate_.AdmitPush({0}, 1, 9, kShards).status(), "push 9 of trainer 0 comes too late");
  ExpectRefused(gate_.AdmitPush({0}, 3, 9, kShards).status(), "remembers its pushes 45 to 300 only");
}

TEST_F(StepGateTest, SequencesCountFrom1) {
  for (uint64_t sequence : {uint64_t{0}, uint64_t{1} << 40}) {
    EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitPush({0}, 1, sequence, kShards).status()));
  }
}

TEST_F(StepGateTest, SkippedStepsPushesAreKnownToo) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  for (uint32_t trainer : {0, 1}) ASSERT_TRUE(gate_.AdmitCommit({trainer}, {1, {}, 1, true}).ok());
  EXPECT_EQ(Push(0, 1, 9), kNone);
}

TEST_F(StepGateTest, NewIncarnationCountsAnewAndTheOldOneIsRefused) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  CommitBoth(1);
  EXPECT_EQ(*gate_.AdmitPull(Caller{0, 2}, 2), Pull::NOW);
  const char* both = "incarnation 1 of trainer 0, which was restarted: its incarnation is 2";
  ExpectRefused(gate_.AdmitPull(Caller{0, 1}, 2).status(), both);
  ExpectRefused(gate_.AdmitPull(Caller{0, 1}, 0).status(), both);
  ExpectRefused(gate_.AdmitPush({0, 1}, 1, 9, kShards).status(), both);
  ExpectRefused(gate_.AdmitPush({0, 1}, 2, 10, kShards).status(), both);
  ExpectRefused(gate_.AdmitNorm({0, 1}, 2).status(), both);
  ExpectRefused(gate_.AdmitCommit({0, 1}, Args(2)).status(), both);
  ExpectRefused(gate_.AdmitPush({0, 2}, 1, 1, kShards).status(), "step 1 is applied");
  EXPECT_EQ(*gate_.AdmitPush({0, 2}, 2, 9, kShards), kShards) << "this 9 is another one";
  EXPECT_EQ(*gate_.AdmitPush({1, 1}, 2, 9, kShards), kShards) << "trainer 1 was not restarted";
  EXPECT_EQ(*gate_.AdmitPull(std::nullopt, 2), Pull::NOW);
}

TEST_F(StepGateTest, NewIncarnationInTheMiddleOfAStepIsRefusedUntilTheStepIsGone) {
  const std::vector<std::function<void(StepGate&)>> beginnings = {
      [](StepGate& gate) { ASSERT_TRUE(gate.AdmitPush({0}, 1, 9, kShards).ok()); },
      [](StepGate& gate) { ASSERT_TRUE(gate.AdmitNorm({0}, 1).ok()); },
      [](StepGate& gate) { ASSERT_TRUE(gate.AdmitCommit({0}, Args(1)).ok()); }};
  for (const auto& begin : beginnings) {
    StepGate gate;
    gate.SetTrainers(2);
    begin(gate);
    for (const absl::Status& status :
         {gate.AdmitPull(Caller{0, 2}, 1).status(), gate.AdmitPush({0, 2}, 1, 1, kShards).status(),
          gate.AdmitNorm({0, 2}, 1).status(), gate.AdmitCommit({0, 2}, Args(1)).status()}) {
      ExpectRefused(status, "incarnation 2 of trainer 0, but incarnation 1 was in the middle of step 1: reload");
    }
    EXPECT_EQ(gate.windows().incarnation(0), 1u) << "nothing changed";
    ASSERT_TRUE(gate.AdmitCommit({0}, Args(1)).ok());
    EXPECT_EQ(*gate.AdmitCommit({1}, Args(1)), Round::COMPLETE);
    EXPECT_EQ(*gate.AdmitPush({0, 2}, 2, 1, kShards), kShards);
  }
}

TEST_F(StepGateTest, NobodyIsAheadByMoreThanOneStep) {
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitPush({0}, 2, 1, kShards).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitCommit({0}, Args(2)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitNorm({0}, 2).status()));
  for (uint64_t step : {uint64_t{0}, uint64_t{1} << 32}) {
    EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitPush({0}, step, 1, kShards).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.AdmitPush({2}, 1, 1, kShards).status())) << "trainer 2 of 2";
}

TEST_F(StepGateTest, CommitNeedsEveryTrainerOnce) {
  EXPECT_EQ(*gate_.AdmitCommit({1}, Args(1)), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitCommit({1}, Args(1)), Round::WAIT) << "sent again";
  EXPECT_EQ(gate_.applied(), 0u);
  EXPECT_EQ(*gate_.AdmitCommit({0}, Args(1)), Round::COMPLETE);
  EXPECT_EQ(gate_.applied(), 1u);
  EXPECT_EQ(*gate_.AdmitCommit({0}, Args(1)), Round::PAST);
}

TEST_F(StepGateTest, DisagreementNamesBothAndForgetsTheStepsCommits) {
  EXPECT_EQ(*gate_.AdmitCommit({0}, Args(1, 0.1f)), Round::WAIT);
  const absl::Status status = gate_.AdmitCommit({1}, Args(1, 0.2f)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("trainer 0"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("trainer 1"), absl::string_view::npos) << status;
  EXPECT_EQ(*gate_.AdmitCommit({1}, Args(1, 0.2f)), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitCommit({0}, Args(1, 0.2f)), Round::COMPLETE);
}

TEST_F(StepGateTest, TheOrderOfRatesDoesNotMatter) {
  CommitArgs turned = Args(1);
  std::swap(turned.rates[0], turned.rates[1]);
  EXPECT_EQ(*gate_.AdmitCommit({0}, Args(1)), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitCommit({1}, turned), Round::COMPLETE);
}

TEST_F(StepGateTest, PushAfterOwnNormOrCommitIsRefusedButARepetitionIsNot) {
  EXPECT_EQ(Push(0, 1, 1), kShards);
  EXPECT_EQ(*gate_.AdmitNorm({0}, 1), Round::WAIT);
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPush({0}, 1, 2, kShards).status()));
  EXPECT_EQ(Push(0, 1, 1), kNone);
  EXPECT_EQ(Push(1, 1, 1), kShards);
  EXPECT_EQ(*gate_.AdmitCommit({1}, Args(1)), Round::WAIT);
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPush({1}, 1, 2, kShards).status()));
}

TEST_F(StepGateTest, NormCompletesOncePerStep) {
  EXPECT_EQ(*gate_.AdmitNorm({0}, 1), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitNorm({0}, 1), Round::WAIT);
  EXPECT_EQ(*gate_.AdmitNorm({1}, 1), Round::COMPLETE);
  EXPECT_EQ(*gate_.AdmitNorm({1}, 1), Round::WAIT) << "asked again: the answer is on its way or known";
  CommitBoth(1);
  EXPECT_EQ(*gate_.AdmitNorm({1}, 1), Round::PAST);
  EXPECT_EQ(*gate_.AdmitNorm({1}, 2), Round::WAIT);
}

TEST_F(StepGateTest, LoadedStepIsTheLastOneApplied) {
  ASSERT_TRUE(gate_.CheckLoad(7).ok());
  ASSERT_TRUE(gate_.Load(7, {}).ok());
  EXPECT_EQ(gate_.applied(), 7u);
  EXPECT_TRUE(gate_.CheckLoad(7).ok()) << "the answer was lost and the load comes again";
  EXPECT_TRUE(absl::IsFailedPrecondition(gate_.AdmitPull(kCaller, 7).status()));
  EXPECT_TRUE(gate_.CheckLoad(7).ok()) << "a refused call begins nothing";
  EXPECT_EQ(*gate_.AdmitPull(kCaller, 8), Pull::NOW);
  EXPECT_EQ(*gate_.AdmitPull(kCaller, 9), Pull::LATER);
  CommitBoth(8);
  EXPECT_EQ(gate_.applied(), 8u);
}

TEST_F(StepGateTest, LoadIsRefusedAfterAnyCallForAStep) {
  EXPECT_EQ(*gate_.AdmitPull(kCaller, 0), Pull::NOW);
  EXPECT_FALSE(gate_.AdmitPush({5}, 1, 1, kShards).ok());
  EXPECT_TRUE(gate_.CheckLoad(7).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(gate_.CheckLoad(uint64_t{1} << 32)));
  const std::vector<std::function<void(StepGate&)>> calls = {
      [](StepGate& gate) { gate.AdmitPull(kCaller, 1).IgnoreError(); },
      [](StepGate& gate) { gate.AdmitPull(kCaller, 9).IgnoreError(); },
      [](StepGate& gate) { gate.AdmitPush({0}, 1, 1, kShards).IgnoreError(); },
      [](StepGate& gate) { gate.AdmitNorm({0}, 1).IgnoreError(); },
      [](StepGate& gate) { gate.AdmitCommit({0}, Args(1)).IgnoreError(); }};
  for (const auto& call : calls) {
    StepGate gate;
    gate.SetTrainers(2);
    call(gate);
    EXPECT_TRUE(absl::IsFailedPrecondition(gate.CheckLoad(7)));
  }
}

}  // namespace
}  // namespace tandem::ps
