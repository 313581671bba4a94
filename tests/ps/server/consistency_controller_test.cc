// The rules of BSP and of the other modes as scripted scenarios. staleness_test.cc has random ones.
#include "ps/server/consistency_controller.h"

#include <functional>

#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

using Pull = ConsistencyController::PullVerdict;
using Round = ConsistencyController::RoundVerdict;

CommitArgs Args(uint64_t step, float rate = 0.1f) {
  return {step, {{1, rate}, {2, rate}}, 0.5f, false};
}

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

class ConsistencyControllerTest : public testing::Test {
 protected:
  ConsistencyControllerTest() { controller_.SetTrainers(2); }
  void CommitBoth(uint64_t step) {
    ASSERT_EQ(*controller_.AdmitCommit({0}, Args(step)), Round::WAIT);
    ASSERT_EQ(*controller_.AdmitCommit({1}, Args(step)), Round::COMPLETE);
  }
  ShardSet Push(uint32_t trainer, uint64_t step, uint64_t sequence) {
    const auto fresh = controller_.AdmitPush({trainer}, step, sequence, kShards);
    EXPECT_TRUE(fresh.ok()) << fresh.status();
    return fresh.value_or(ShardSet().set());
  }
  ConsistencyController controller_;
};

TEST_F(ConsistencyControllerTest, PullWaitsForTheStepBefore) {
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 0), Pull::NOW);
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 1), Pull::NOW);
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 2), Pull::LATER);
  CommitBoth(1);
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 2), Pull::NOW);
  EXPECT_TRUE(absl::IsFailedPrecondition(controller_.AdmitPull(kCaller, 1).status()))
      << "rows before step 1 are gone";
}

// A trainer may have one pull in flight beyond the steps that may be under way. A pull further
// ahead would wait for ever.
TEST_F(ConsistencyControllerTest, PullFurtherAheadThanOneStepIsRefusedAndNothingHasBegun) {
  for (const std::optional<Caller>& caller : {kCaller, std::optional<Caller>()}) {
    for (uint64_t step : {uint64_t{3}, uint64_t{1'000'000'000}, uint64_t{1} << 32, ~uint64_t{0}}) {
      const absl::Status status = controller_.AdmitPull(caller, step).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    }
  }
  const absl::Status far = controller_.AdmitPull(Caller{1, 2}, 3).status();
  EXPECT_NE(far.message().find("pull for step 3 from trainer 1, but only 0 steps are applied"),
            absl::string_view::npos)
      << far;
  EXPECT_EQ(controller_.windows().incarnation(1), 0u);
  EXPECT_TRUE(controller_.CheckLoad(7).ok());
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 2), Pull::LATER);
  CommitBoth(1);
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 3), Pull::LATER);
}

TEST_F(ConsistencyControllerTest, RepeatedPushIsKnownByTrainerAndSequence) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  EXPECT_EQ(Push(0, 1, 9), kNone);
  EXPECT_EQ(Push(1, 1, 9), kShards);
  EXPECT_EQ(Push(0, 1, 10), kShards);
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 10, kMoreShards), kMoreShards & ~kShards)
      << "only what it did not have before";
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 10, kMoreShards), kNone);
  CommitBoth(1);
  EXPECT_EQ(Push(0, 1, 9), kNone) << "the step is applied";
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 10, kMoreShards), kNone);
  EXPECT_EQ(Push(0, 2, 11), kShards);
}

// BytePS and others add a machine's gradients up and resend them under a name that does not tell
// whose they are.
TEST_F(ConsistencyControllerTest, AMergedPushCountsForAllThatItCovers) {
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 9, kShards, {{1, 1, 5}}), kShards);
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 9, kShards, {{1, 1, 5}}), kNone) << "it comes again";
  EXPECT_EQ(Push(1, 1, 5), kNone) << "the covered one comes by itself";
  EXPECT_EQ(*controller_.AdmitPush({1}, 1, 5, kShards, {{0, 1, 9}}), kNone)
      << "or merged by another";
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 9, Shards({3}), {{1, 1, 5}}), Shards({3}))
      << "another message of the same pushes";
  ASSERT_EQ(*controller_.AdmitCommit({1}, Args(1)), Round::WAIT);
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 9, Shards({4}), {{1, 1, 5}}), Shards({4}))
      << "the covered trainer has gone on";
  ASSERT_EQ(*controller_.AdmitCommit({0}, Args(1)), Round::COMPLETE);
  const ShardSet all = kShards | Shards({3, 4});
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 9, all, {{1, 1, 5}}), kNone) << "long after";
  EXPECT_EQ(*controller_.AdmitPush({1}, 1, 5, all), kNone);
  ExpectRefused(controller_.AdmitPush({0}, 1, 9, kShards, {{1, 1, 6}}).status(),
                "push 6 of trainer 1 for step 1 is new, but step 1 is applied");
}

TEST_F(ConsistencyControllerTest, AMergedPushThatCannotBeTakenApartChangesNothing) {
  EXPECT_EQ(Push(1, 1, 5), kShards);
  const auto merged = [&](const ShardSet& shards) {
    return controller_.AdmitPush({0}, 1, 9, shards, {{1, 1, 5}});
  };
  ExpectRefused(
      merged(kShards).status(),
      "push 9 of trainer 0 for step 1 covers push 5 of trainer 1, but of some virtual shards");
  ExpectRefused(merged(kMoreShards).status(), "cannot be taken apart");
  EXPECT_EQ(*merged(kMoreShards & ~kShards), kMoreShards & ~kShards)
      << "of these shards nobody's has come";
  EXPECT_EQ(Push(0, 1, 9), kShards) << "what was refused was not remembered";
}

TEST_F(ConsistencyControllerTest, AMergedPushOfAProcessThatIsGoneIsRefused) {
  ASSERT_TRUE(controller_.AdmitPull(Caller{1, 2}, 1).ok());
  ExpectRefused(controller_.AdmitPush({0}, 1, 9, kShards, {{1, 1, 5}}).status(),
                "covered push from incarnation 1 of trainer 1, which was restarted");
  EXPECT_EQ(*controller_.AdmitPush({0}, 1, 9, kShards, {{1, 2, 5}}), kShards);
  ExpectRefused(controller_.AdmitPull(Caller{1, 3}, 1).status(),
                "incarnation 2 was in the middle of step 1");
}

TEST_F(ConsistencyControllerTest, AMergedPushCoversEachOtherTrainerOnceInBspOnly) {
  const auto expect_invalid = [](const absl::Status& status, const char* words) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(status.message().find(words), absl::string_view::npos) << status;
  };
  expect_invalid(controller_.AdmitPush({0}, 1, 9, kShards, {{0, 1, 8}}).status(),
                 "covers trainer 0 twice");
  expect_invalid(controller_.AdmitPush({0}, 1, 9, kShards, {{1, 1, 5}, {1, 1, 6}}).status(),
                 "covers trainer 1 twice");
  expect_invalid(controller_.AdmitPush({0}, 1, 9, kShards, {{2, 1, 5}}).status(),
                 "covered push from trainer 2, but this job has 2 trainers");
  expect_invalid(controller_.AdmitPush({0}, 1, 9, kShards, {{1, 1, 0}}).status(),
                 "covers push 0 of trainer 1; sequences count from 1");
  expect_invalid(controller_.AdmitPush({0}, 1, 9, kShards, {{1, 1, uint64_t{1} << 40}}).status(),
                 "sequences count from 1");
  EXPECT_EQ(Push(0, 1, 9), kShards);
  EXPECT_EQ(Push(1, 1, 5), kShards);
  for (const auto mode : {ConsistencySpec::SSP, ConsistencySpec::ASP, ConsistencySpec::PERMIT}) {
    ConsistencyController gate;
    ConsistencySpec consistency;
    consistency.set_mode(mode);
    if (mode == ConsistencySpec::PERMIT) consistency.set_staleness(1);
    gate.SetTrainers(2, consistency);
    expect_invalid(gate.AdmitPush({0}, 1, 9, kShards, {{1, 1, 5}}).status(),
                   "covers pushes of other trainers; with consistency ");
    EXPECT_EQ(*gate.AdmitPush({1}, 1, 5, kShards), kShards);
  }
}

TEST_F(ConsistencyControllerTest, PushThatWouldBeLostIsRefused) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  CommitBoth(1);
  ExpectRefused(controller_.AdmitPush({0}, 1, 10, kShards).status(),
                "push 10 of trainer 0 for step 1 is new, but step 1 is applied");
  ExpectRefused(controller_.AdmitPush({0}, 1, 8, kShards).status(),
                "is new, but step 1 is applied");
  ExpectRefused(controller_.AdmitPush({0}, 1, 9, kMoreShards).status(),
                "is new, but step 1 is applied");
  ExpectRefused(controller_.AdmitPush({0}, 2, 9, kShards).status(),
                "has a sequence that another step had");
  EXPECT_EQ(Push(0, 2, 300), kShards);
  CommitBoth(2);
  ExpectRefused(controller_.AdmitPush({0}, 1, 9, kShards).status(),
                "push 9 of trainer 0 comes too late");
  ExpectRefused(controller_.AdmitPush({0}, 3, 9, kShards).status(),
                "remembers its pushes 45 to 300 only");
}

TEST_F(ConsistencyControllerTest, SequencesCountFrom1) {
  for (uint64_t sequence : {uint64_t{0}, uint64_t{1} << 40}) {
    EXPECT_TRUE(absl::IsInvalidArgument(controller_.AdmitPush({0}, 1, sequence, kShards).status()));
  }
}

TEST_F(ConsistencyControllerTest, SkippedStepsPushesAreKnownToo) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  for (uint32_t trainer : {0, 1})
    ASSERT_TRUE(controller_.AdmitCommit({trainer}, {1, {}, 1, true}).ok());
  EXPECT_EQ(Push(0, 1, 9), kNone);
}

TEST_F(ConsistencyControllerTest, NewIncarnationCountsAnewAndTheOldOneIsRefused) {
  EXPECT_EQ(Push(0, 1, 9), kShards);
  CommitBoth(1);
  EXPECT_EQ(*controller_.AdmitPull(Caller{0, 2}, 2), Pull::NOW);
  const char* both = "incarnation 1 of trainer 0, which was restarted: its incarnation is 2";
  ExpectRefused(controller_.AdmitPull(Caller{0, 1}, 2).status(), both);
  ExpectRefused(controller_.AdmitPull(Caller{0, 1}, 0).status(), both);
  ExpectRefused(controller_.AdmitPush({0, 1}, 1, 9, kShards).status(), both);
  ExpectRefused(controller_.AdmitPush({0, 1}, 2, 10, kShards).status(), both);
  ExpectRefused(controller_.AdmitNorm({0, 1}, 2).status(), both);
  ExpectRefused(controller_.AdmitCommit({0, 1}, Args(2)).status(), both);
  ExpectRefused(controller_.AdmitPush({0, 2}, 1, 1, kShards).status(), "step 1 is applied");
  EXPECT_EQ(*controller_.AdmitPush({0, 2}, 2, 9, kShards), kShards) << "this 9 is another one";
  EXPECT_EQ(*controller_.AdmitPush({1, 1}, 2, 9, kShards), kShards)
      << "trainer 1 was not restarted";
  EXPECT_EQ(*controller_.AdmitPull(std::nullopt, 2), Pull::NOW);
}

TEST_F(ConsistencyControllerTest, NewIncarnationInTheMiddleOfAStepIsRefusedUntilTheStepIsGone) {
  const std::vector<std::function<void(ConsistencyController&)>> beginnings = {
      [](ConsistencyController& gate) { ASSERT_TRUE(gate.AdmitPush({0}, 1, 9, kShards).ok()); },
      [](ConsistencyController& gate) { ASSERT_TRUE(gate.AdmitNorm({0}, 1).ok()); },
      [](ConsistencyController& gate) { ASSERT_TRUE(gate.AdmitCommit({0}, Args(1)).ok()); }};
  for (const auto& begin : beginnings) {
    ConsistencyController gate;
    gate.SetTrainers(2);
    begin(gate);
    for (const absl::Status& status :
         {gate.AdmitPull(Caller{0, 2}, 1).status(), gate.AdmitPush({0, 2}, 1, 1, kShards).status(),
          gate.AdmitNorm({0, 2}, 1).status(), gate.AdmitCommit({0, 2}, Args(1)).status()}) {
      ExpectRefused(
          status,
          "incarnation 2 of trainer 0, but incarnation 1 was in the middle of step 1: reload");
    }
    EXPECT_EQ(gate.windows().incarnation(0), 1u) << "nothing changed";
    ASSERT_TRUE(gate.AdmitCommit({0}, Args(1)).ok());
    EXPECT_EQ(*gate.AdmitCommit({1}, Args(1)), Round::COMPLETE);
    EXPECT_EQ(*gate.AdmitPush({0, 2}, 2, 1, kShards), kShards);
  }
}

TEST_F(ConsistencyControllerTest, NobodyIsAheadByMoreThanOneStep) {
  EXPECT_TRUE(absl::IsInvalidArgument(controller_.AdmitPush({0}, 2, 1, kShards).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(controller_.AdmitCommit({0}, Args(2)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(controller_.AdmitNorm({0}, 2).status()));
  for (uint64_t step : {uint64_t{0}, uint64_t{1} << 32}) {
    EXPECT_TRUE(absl::IsInvalidArgument(controller_.AdmitPush({0}, step, 1, kShards).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(controller_.AdmitPush({2}, 1, 1, kShards).status()))
      << "trainer 2 of 2";
}

TEST_F(ConsistencyControllerTest, CommitNeedsEveryTrainerOnce) {
  EXPECT_EQ(*controller_.AdmitCommit({1}, Args(1)), Round::WAIT);
  EXPECT_EQ(*controller_.AdmitCommit({1}, Args(1)), Round::WAIT) << "sent again";
  EXPECT_EQ(controller_.applied(), 0u);
  EXPECT_EQ(*controller_.AdmitCommit({0}, Args(1)), Round::COMPLETE);
  EXPECT_EQ(controller_.applied(), 1u);
  EXPECT_EQ(*controller_.AdmitCommit({0}, Args(1)), Round::PAST);
}

TEST_F(ConsistencyControllerTest, DisagreementNamesBothAndForgetsTheStepsCommits) {
  EXPECT_EQ(*controller_.AdmitCommit({0}, Args(1, 0.1f)), Round::WAIT);
  const absl::Status status = controller_.AdmitCommit({1}, Args(1, 0.2f)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(status.message().find("trainer 0"), absl::string_view::npos) << status;
  EXPECT_NE(status.message().find("trainer 1"), absl::string_view::npos) << status;
  EXPECT_EQ(*controller_.AdmitCommit({1}, Args(1, 0.2f)), Round::WAIT);
  EXPECT_EQ(*controller_.AdmitCommit({0}, Args(1, 0.2f)), Round::COMPLETE);
}

TEST_F(ConsistencyControllerTest, TheOrderOfRatesDoesNotMatter) {
  CommitArgs turned = Args(1);
  std::swap(turned.rates[0], turned.rates[1]);
  EXPECT_EQ(*controller_.AdmitCommit({0}, Args(1)), Round::WAIT);
  EXPECT_EQ(*controller_.AdmitCommit({1}, turned), Round::COMPLETE);
}

TEST_F(ConsistencyControllerTest, PushAfterOwnNormOrCommitIsRefusedButARepetitionIsNot) {
  EXPECT_EQ(Push(0, 1, 1), kShards);
  EXPECT_EQ(*controller_.AdmitNorm({0}, 1), Round::WAIT);
  EXPECT_TRUE(absl::IsFailedPrecondition(controller_.AdmitPush({0}, 1, 2, kShards).status()));
  EXPECT_EQ(Push(0, 1, 1), kNone);
  EXPECT_EQ(Push(1, 1, 1), kShards);
  EXPECT_EQ(*controller_.AdmitCommit({1}, Args(1)), Round::WAIT);
  EXPECT_TRUE(absl::IsFailedPrecondition(controller_.AdmitPush({1}, 1, 2, kShards).status()));
}

TEST_F(ConsistencyControllerTest, NormCompletesOncePerStep) {
  EXPECT_EQ(*controller_.AdmitNorm({0}, 1), Round::WAIT);
  EXPECT_EQ(*controller_.AdmitNorm({0}, 1), Round::WAIT);
  EXPECT_EQ(*controller_.AdmitNorm({1}, 1), Round::COMPLETE);
  EXPECT_EQ(*controller_.AdmitNorm({1}, 1), Round::WAIT)
      << "asked again: the answer is on its way or known";
  CommitBoth(1);
  EXPECT_EQ(*controller_.AdmitNorm({1}, 1), Round::PAST);
  EXPECT_EQ(*controller_.AdmitNorm({1}, 2), Round::WAIT);
}

TEST_F(ConsistencyControllerTest, LoadedStepIsTheLastOneApplied) {
  ASSERT_TRUE(controller_.CheckLoad(7).ok());
  ASSERT_TRUE(controller_.Load(7, {}).ok());
  EXPECT_EQ(controller_.applied(), 7u);
  EXPECT_TRUE(controller_.CheckLoad(7).ok()) << "the answer was lost and the load comes again";
  EXPECT_TRUE(absl::IsFailedPrecondition(controller_.AdmitPull(kCaller, 7).status()));
  EXPECT_TRUE(controller_.CheckLoad(7).ok()) << "a refused call begins nothing";
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 8), Pull::NOW);
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 9), Pull::LATER);
  CommitBoth(8);
  EXPECT_EQ(controller_.applied(), 8u);
}

TEST_F(ConsistencyControllerTest, LoadIsRefusedAfterAnyCallForAStep) {
  EXPECT_EQ(*controller_.AdmitPull(kCaller, 0), Pull::NOW);
  EXPECT_FALSE(controller_.AdmitPush({5}, 1, 1, kShards).ok());
  EXPECT_TRUE(controller_.CheckLoad(7).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(controller_.CheckLoad(uint64_t{1} << 32)));
  const std::vector<std::function<void(ConsistencyController&)>> calls = {
      [](ConsistencyController& gate) { gate.AdmitPull(kCaller, 1).IgnoreError(); },
      [](ConsistencyController& gate) { gate.AdmitPull(kCaller, 2).IgnoreError(); },
      [](ConsistencyController& gate) { gate.AdmitPush({0}, 1, 1, kShards).IgnoreError(); },
      [](ConsistencyController& gate) { gate.AdmitNorm({0}, 1).IgnoreError(); },
      [](ConsistencyController& gate) { gate.AdmitCommit({0}, Args(1)).IgnoreError(); }};
  for (const auto& call : calls) {
    ConsistencyController gate;
    gate.SetTrainers(2);
    call(gate);
    EXPECT_TRUE(absl::IsFailedPrecondition(gate.CheckLoad(7)));
  }
}

ConsistencyController MakeGate(ConsistencySpec::Mode mode, uint32_t staleness,
                               uint32_t num_trainers = 2) {
  ConsistencySpec spec;
  spec.set_mode(mode);
  spec.set_staleness(staleness);
  ConsistencyController gate;
  gate.SetTrainers(num_trainers, spec);
  return gate;
}

TEST(OwnCommitTest, IsAppliedAtOnceWithItsTrainersPushesAlone) {
  for (const auto& [mode, staleness] : {std::pair(ConsistencySpec::SSP, 2),
                                        {ConsistencySpec::ASP, 0},
                                        {ConsistencySpec::PERMIT, 1}}) {
    SCOPED_TRACE(mode);
    ConsistencyController gate = MakeGate(mode, static_cast<uint32_t>(staleness));
    ASSERT_EQ(*gate.AdmitPush({0}, 1, 9, kShards), kShards);
    ASSERT_EQ(*gate.AdmitPush({1}, 1, 9, kShards), kShards);
    EXPECT_EQ(*gate.AdmitCommit({0}, Args(1, 0.1f)), Round::COMPLETE);
    EXPECT_EQ(*gate.AdmitCommit({0}, Args(1, 0.1f)), Round::PAST) << "sent again";
    EXPECT_EQ(gate.clock(0), 1u);
    EXPECT_EQ(gate.clock(1), 0u);
    EXPECT_EQ(gate.applied(), 0u);
    EXPECT_EQ(*gate.AdmitPush({0}, 1, 9, kShards), kNone) << "it is in the rows";
    EXPECT_EQ(*gate.AdmitPush({1}, 1, 9, kShards), kNone) << "it is pending";
    EXPECT_EQ(gate.windows().Save().size(), kShards.count()) << "trainer 0's only";
    ExpectRefused(gate.AdmitPush({0}, 1, 10, kShards).status(), "is new, but step 1 is applied");
    EXPECT_EQ(*gate.AdmitCommit({1}, Args(1, 0.2f)), Round::COMPLETE)
        << "there is nobody to disagree with";
    EXPECT_TRUE(absl::IsInvalidArgument(gate.AdmitCommit({0}, Args(3)).status()));
  }
}

TEST(OwnCommitTest, NormIsTheCallersOwnAndWaitsForNobody) {
  ConsistencyController gate = MakeGate(ConsistencySpec::ASP, 0);
  ASSERT_EQ(*gate.AdmitPush({0}, 1, 1, kShards), kShards);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(*gate.AdmitNorm({0}, 1), Round::COMPLETE) << "an answer that was lost is found again";
  ExpectRefused(gate.AdmitPush({0}, 1, 2, kShards).status(),
                "comes after the trainer's gradient norm");
  EXPECT_EQ(*gate.AdmitPush({1}, 1, 1, kShards), kShards);
  EXPECT_EQ(*gate.AdmitCommit({0}, Args(1)), Round::COMPLETE);
  EXPECT_EQ(*gate.AdmitNorm({0}, 1), Round::PAST);
  EXPECT_EQ(*gate.AdmitPush({0}, 2, 2, kShards), kShards);
}

TEST(PermitTest, StepsUnderWayTakePushesBeforeTheCommitOfTheFirst) {
  ConsistencyController gate = MakeGate(ConsistencySpec::PERMIT, 2);
  EXPECT_EQ(*gate.AdmitPull(Caller{0}, 2), Pull::NOW);
  EXPECT_EQ(*gate.AdmitPull(Caller{0}, 3), Pull::LATER);
  EXPECT_TRUE(absl::IsInvalidArgument(gate.AdmitPull(Caller{0}, 4).status()));
  EXPECT_EQ(*gate.AdmitPush({0}, 2, 2, kShards), kShards);
  EXPECT_EQ(*gate.AdmitPush({0}, 1, 1, kShards), kShards);
  EXPECT_TRUE(absl::IsInvalidArgument(gate.AdmitPush({0}, 3, 3, kShards).status()));
  ExpectRefused(gate.AdmitPush({0}, 1, 2, kMoreShards).status(),
                "has a sequence that another step had");
  ASSERT_EQ(*gate.AdmitNorm({0}, 1), Round::COMPLETE);
  EXPECT_EQ(*gate.AdmitPush({0}, 2, 3, kShards), kShards) << "the norm was of step 1";
  EXPECT_TRUE(absl::IsInvalidArgument(gate.AdmitCommit({0}, Args(2)).status()));
  EXPECT_EQ(*gate.AdmitCommit({0}, Args(1)), Round::COMPLETE);
  EXPECT_TRUE(gate.AdmitWaitingPull(Caller{0}, 3));
  EXPECT_EQ(gate.windows().Find(0, 1, kShards)->applied, kShards);
  EXPECT_EQ(gate.windows().Find(0, 2, kShards)->pending, kShards) << "of step 2";
  ExpectRefused(gate.AdmitPush({0, 2}, 2, 1, kShards).status(), "was in the middle of step 2");
}

TEST(OwnClockTest, PullOfNoTrainerWaitsForTheSlowest) {
  ConsistencyController gate = MakeGate(ConsistencySpec::ASP, 0);
  ASSERT_EQ(*gate.AdmitCommit({0}, Args(1)), Round::COMPLETE);
  EXPECT_EQ(*gate.AdmitPull(Caller{0}, 2), Pull::NOW);
  ExpectRefused(gate.AdmitPull(Caller{0}, 1).status(), "step 1 is applied: its rows are gone");
  EXPECT_EQ(*gate.AdmitPull(std::nullopt, 1), Pull::NOW);
  EXPECT_EQ(*gate.AdmitPull(std::nullopt, 2), Pull::LATER);
  ASSERT_EQ(*gate.AdmitCommit({1}, Args(1)), Round::COMPLETE);
  EXPECT_TRUE(gate.AdmitWaitingPull(std::nullopt, 2));
}

TEST(OwnClockTest, RowsAreSavedWhenAllClocksAreEqualAndLoadedForAll) {
  ConsistencyController gate = MakeGate(ConsistencySpec::SSP, 5);
  ASSERT_TRUE(gate.Load(7, {}).ok());
  for (uint32_t trainer : {0, 1}) EXPECT_EQ(gate.clock(trainer), 7u);
  EXPECT_TRUE(gate.CheckSave(7).ok());
  ASSERT_EQ(*gate.AdmitCommit({0}, Args(8)), Round::COMPLETE);
  ExpectRefused(gate.CheckSave(8),
                "rows of step 8 cannot be saved: the last step applied of trainer 1 is 7");
  ExpectRefused(gate.CheckSave(7), "the last step applied of trainer 0 is 8");
  ASSERT_EQ(*gate.AdmitCommit({1}, Args(8)), Round::COMPLETE);
  EXPECT_TRUE(gate.CheckSave(8).ok());
}

TEST(CheckConsistencyTest, ABoundBelongsToAModeThatHasOne) {
  for (const auto& [mode, staleness, legal] : {std::tuple(0, 0u, true),
                                               {0, 1u, false},
                                               {1, 0u, true},
                                               {1, 9u, true},
                                               {2, 0u, true},
                                               {2, 1u, false},
                                               {3, 0u, false},
                                               {3, 1u, true},
                                               {17, 0u, false}}) {
    ConsistencySpec spec;
    spec.set_mode(static_cast<ConsistencySpec::Mode>(mode));
    spec.set_staleness(staleness);
    const absl::Status status = CheckConsistency(spec);
    EXPECT_EQ(status.ok(), legal) << mode << " " << staleness;
    EXPECT_TRUE(legal || absl::IsInvalidArgument(status)) << status;
  }
}

}  // namespace
}  // namespace tandem::ps
