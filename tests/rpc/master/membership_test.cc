// The membership core, driven by scripts and a clock made of numbers.
#include "rpc/master/membership.h"

#include <gtest/gtest.h>
#include <map>

#include "proto/wire.pb.h"

namespace tandem::rpc {
namespace {

constexpr uint64_t kJob = 0xfeed;

class Script {
 public:
  Script(uint32_t num_ps, uint32_t num_trainers, uint32_t num_workers = 0)
      : options_{.num_ps = num_ps,
                 .num_trainers = num_trainers,
                 .num_workers = num_workers,
                 .job_fingerprint = kJob},
        membership_(options_, 100) {}

  // Each function returns the number of its call.
  uint64_t Register(double now, Role role, const std::string& host, int64_t pid, int index = -1,
                    uint64_t job = kJob, const std::string& key = "key") {
    RegisterEvent event;
    event.key = key;
    event.self = {role, 0, host, pid, host + ":" + std::to_string(pid)};
    event.preferred_index = index;
    event.job_fingerprint = job;
    event.call = ++calls_;
    Step(event, now);
    return calls_;
  }
  uint64_t Beat(double now, Role role, uint32_t rank, const std::string& key = "key") {
    Step(HeartbeatEvent{++calls_, role, rank, key}, now);
    return calls_;
  }
  uint64_t Leave(double now, Role role, uint32_t rank, absl::Status status = absl::OkStatus(),
                 const std::string& key = "key") {
    Step(LeaveEvent{++calls_, role, rank, status, key}, now);
    return calls_;
  }
  void Fail(double now, absl::Status reason) { Step(FailEvent{reason}, now); }
  void Tick(double now) { Step(TickEvent(), now); }
  // Ticks every 0.5 s from `from` to `to`; the named trainers beat before each.
  void Run(double from, double to, std::vector<uint32_t> beating, Role role = TRAINER) {
    for (double now = from; now <= to + 1e-9; now += 0.5) {
      for (uint32_t rank : beating) Beat(now, role, rank);
      Tick(now);
    }
  }

  bool Answered(uint64_t call) const { return answers_.count(call) > 0; }
  absl::Status Refusal(uint64_t call) const { return answers_.at(call).refusal; }
  int Rank(uint64_t call) const {
    return Answered(call) && answers_.at(call).rank.has_value()
               ? static_cast<int>(*answers_.at(call).rank)
               : -1;
  }
  const Membership& operator*() const { return membership_; }
  const Membership* operator->() const { return &membership_; }

 private:
  void Step(const Event& event, double now) {
    for (const Action& action : membership_.Step(event, now)) {
      EXPECT_TRUE(answers_.emplace(action.call, action).second)
          << "call " << action.call << " answered twice";
    }
  }
  MembershipOptions options_;
  Membership membership_;
  uint64_t calls_ = 0;
  std::map<uint64_t, Action> answers_;
};

// Two trainers on one host, running since t = 100.
Script Running() {
  Script script(0, 2);
  script.Register(100, TRAINER, "host", 10);
  script.Register(100, TRAINER, "host", 11);
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  return script;
}

TEST(MembershipTest, RegisterIsAnsweredWhenAllHaveRegistered) {
  Script script(1, 2);
  const uint64_t trainer = script.Register(100, TRAINER, "a", 1);
  const uint64_t ps = script.Register(100.1, PS, "a", 2);
  script.Tick(100.2);
  EXPECT_FALSE(script.Answered(trainer) || script.Answered(ps));
  EXPECT_EQ(script->phase(), Phase::REGISTERING);
  const uint64_t last = script.Register(100.3, TRAINER, "a", 3);
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  EXPECT_EQ(script.Rank(trainer), 0);
  EXPECT_EQ(script.Rank(ps), 0);
  EXPECT_EQ(script.Rank(last), 1);
  const auto members = script->members();
  ASSERT_EQ(members.size(), 3u);
  EXPECT_EQ(members[0].role, PS);
  EXPECT_EQ(members[2].pid, 3);
}

TEST(MembershipTest, RanksOfOneHostAreContiguousInOrderOfRegistration) {
  Script script(0, 5);
  std::vector<uint64_t> calls;
  const std::vector<std::string> hosts = {"b", "a", "b", "c", "a"};
  for (int i = 0; i < 5; ++i) calls.push_back(script.Register(100, TRAINER, hosts[i], i));
  const std::vector<int> ranks = {2, 0, 3, 4, 1};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(script.Rank(calls[i]), ranks[i]) << i;
}

TEST(MembershipTest, AWantedIndexIsGivenAndTheOthersFillTheRest) {
  Script script(0, 4);
  const uint64_t a = script.Register(100, TRAINER, "a", 1);
  const uint64_t b = script.Register(100, TRAINER, "b", 2, 0);
  const uint64_t c = script.Register(100, TRAINER, "b", 3, 2);
  const uint64_t d = script.Register(100, TRAINER, "a", 4);
  EXPECT_EQ(script.Rank(a), 1);
  EXPECT_EQ(script.Rank(b), 0);
  EXPECT_EQ(script.Rank(c), 2);
  EXPECT_EQ(script.Rank(d), 3);
}

TEST(MembershipTest, ATakenIndexIsRefusedAndNamesItsHolder) {
  Script script(2, 4);
  script.Register(100, TRAINER, "first", 77, 3);
  const uint64_t second = script.Register(100, TRAINER, "other", 78, 3);
  EXPECT_EQ(script.Refusal(second),
            absl::FailedPreconditionError("trainer index 3 is already taken by first pid 77"));
  const uint64_t ps = script.Register(100, PS, "other", 79, 2);
  EXPECT_EQ(script.Refusal(ps),
            absl::FailedPreconditionError("ps index 2 does not exist: this job has 2 PS"));
  EXPECT_EQ(script->phase(), Phase::REGISTERING);
}

TEST(MembershipTest, OneTooManyAndAnotherJobAreRefused) {
  Script script(1, 1);
  script.Register(100, TRAINER, "a", 1);
  const uint64_t extra = script.Register(100, TRAINER, "a", 2);
  EXPECT_EQ(script.Refusal(extra),
            absl::FailedPreconditionError("this job has 1 trainer and no place is free"));
  const uint64_t stranger = script.Register(100, PS, "a", 3, -1, 0xbad);
  EXPECT_TRUE(absl::IsFailedPrecondition(script.Refusal(stranger)));
  EXPECT_NE(script.Refusal(stranger).ToString().find("000000000000feed"), std::string::npos);
  const uint64_t nothing = script.Register(100, MASTER, "a", 4);
  EXPECT_TRUE(absl::IsInvalidArgument(script.Refusal(nothing)));
}

TEST(MembershipTest, AHeldRegisterIsToldToCallAgainAndIsTheSameMember) {
  Script script(0, 2);
  uint64_t call = script.Register(100, TRAINER, "a", 1);
  script.Tick(101);
  EXPECT_FALSE(script.Answered(call));
  script.Tick(102);
  EXPECT_TRUE(script.Answered(call));
  EXPECT_EQ(script.Rank(call), -1);
  const uint64_t again = script.Register(102.1, TRAINER, "a", 1);
  const uint64_t repeated =
      script.Register(102.2, TRAINER, "a", 1);  // its connection broke: the older call is let go
  EXPECT_TRUE(script.Answered(again));
  script.Register(103, TRAINER, "a", 2);
  EXPECT_EQ(script.Rank(repeated), 0);
  EXPECT_EQ(script.Rank(script.Register(104, TRAINER, "a", 1)), 0);  // the reply was lost
}

TEST(MembershipTest, AProcessThatDiesBeforeTheStartFreesItsPlace) {
  Script script(0, 2);
  script.Register(100, TRAINER, "a", 1, 0);
  script.Run(100.5, 108.5, {});
  const uint64_t replacement = script.Register(109, TRAINER, "a", 2, 0);
  script.Register(109, TRAINER, "a", 3);
  EXPECT_EQ(script.Rank(replacement), 0);
}

TEST(MembershipTest, MissingMembersFailTheJobByName) {
  Script script(1, 2);
  uint64_t call = 0;
  for (double now = 100; now < 160; now += 1) {
    script.Tick(now);
    call = script.Register(now, TRAINER, "a", 1);
    script.Register(now, PS, "a", 9);
  }
  EXPECT_EQ(script->phase(), Phase::REGISTERING);
  script.Tick(160);
  EXPECT_EQ(script->phase(), Phase::FAILED);
  EXPECT_EQ(
      script->failure(),
      absl::UnavailableError("only 1 of 2 trainers registered within 60 s: missing trainer-1"));
  EXPECT_TRUE(script.Answered(call));
  const uint64_t late = script.Register(161, TRAINER, "a", 2);
  EXPECT_TRUE(script.Refusal(late).ok());  // learns the state
  EXPECT_FALSE(script->ended());
  script.Tick(165);
  EXPECT_TRUE(script->ended());
}

TEST(MembershipTest, EveryMissingRoleIsNamed) {
  Script script(2, 2);
  script.Register(100, TRAINER, "a", 1, 1);
  script.Tick(101);
  for (double now = 101; now < 160; now += 1)
    script.Register(now, TRAINER, "a", 1, 1), script.Tick(now);
  script.Tick(160);
  EXPECT_EQ(
      std::string(script->failure().message()),
      "only 0 of 2 PS and 1 of 2 trainers registered within 60 s: missing ps-0, ps-1, trainer-0");
}

TEST(MembershipTest, AMissingHeartbeatFailsTheJob) {
  Script script = Running();
  script.Run(100.5, 105.5, {0});
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  script.Run(106, 106, {0});
  EXPECT_EQ(script->phase(), Phase::FAILED);
  EXPECT_EQ(
      script->failure(),
      absl::UnavailableError(
          "trainer-1 (host pid 11) has not answered for 6.0 s: it is stopped, dead or cut off"));
}

// No member beats before the job starts. A member between two Register calls must not count as
// silent.
TEST(MembershipTest, SilenceCountsFromTheStartAlsoForAMemberBetweenTwoCalls) {
  Script script(0, 2);
  const uint64_t held = script.Register(100, TRAINER, "host", 10);
  script.Run(100.5, 106.5, {});
  ASSERT_TRUE(script.Answered(held)) << "it is told to call again";
  script.Register(107, TRAINER, "host", 11);
  ASSERT_EQ(script->phase(), Phase::RUNNING);
  script.Run(107, 112.5, {1});
  EXPECT_EQ(script->phase(), Phase::RUNNING) << script->failure();
  EXPECT_EQ(script.Rank(script.Register(112.6, TRAINER, "host", 10)), 0);
  script.Run(113, 118.5, {1});
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  script.Run(119, 119, {1});
  EXPECT_EQ(
      script->failure(),
      absl::UnavailableError(
          "trainer-0 (host pid 10) has not answered for 6.4 s: it is stopped, dead or cut off"));
}

TEST(MembershipTest, OfSeveralSilentMembersTheFirstToFallSilentIsNamed) {
  Script script = Running();
  script.Run(100.5, 102, {0, 1});
  script.Run(102.5, 103, {0});
  script.Run(103.5, 107.5, {});
  script.Tick(109.4);  // by now both are late
  EXPECT_EQ(std::string(script->failure().message()).rfind("trainer-1", 0), 0u)
      << script->failure();
}

TEST(MembershipTest, TheMastersOwnPauseIsNotTheMembersSilence) {
  Script script = Running();
  script.Run(100.5, 104, {0, 1});
  script.Tick(130);  // the master was stopped for 26 s
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  script.Run(130.5, 133, {0, 1});
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  script.Run(133.5, 140, {0});
  EXPECT_EQ(script->phase(), Phase::FAILED);  // the silence after it is
}

TEST(MembershipTest, TheFirstFailureIsTheJobs) {
  Script script = Running();
  script.Leave(101, TRAINER, 1, absl::DataLossError("line 7: not a number"));
  EXPECT_EQ(script->failure(), absl::DataLossError("trainer-1: line 7: not a number"));
  script.Fail(101, absl::InternalError("later"));
  script.Leave(101, TRAINER, 0, absl::UnavailableError("lost trainer-1"));
  EXPECT_EQ(script->failure(), absl::DataLossError("trainer-1: line 7: not a number"));
  EXPECT_TRUE(script->ended());  // both have left
}

TEST(MembershipTest, AFailedJobEndsAfterFiveSecondsEvenIfMembersHang) {
  Script script = Running();
  script.Fail(101, absl::CancelledError("SIGTERM"));
  EXPECT_TRUE(script.Refusal(script.Beat(102, TRAINER, 0)).ok());  // and is told
  script.Tick(105.9);
  EXPECT_FALSE(script->ended());
  script.Tick(106);
  EXPECT_TRUE(script->ended());
  EXPECT_EQ(script->failure(), absl::CancelledError("SIGTERM"));
}

// A member that is stopped too never leaves, and a member that has not come by now may never come.
TEST(MembershipTest, AJobThatFailsBeforeItRanEndsWhenAllWhoRegisteredHaveBeenTold) {
  Script script(1, 2);
  const uint64_t held = script.Register(100, TRAINER, "a", 1);
  const uint64_t answered = script.Register(100, TRAINER, "a", 2);
  script.Tick(101);
  script.Register(101.5, TRAINER, "a", 1);
  script.Tick(102);
  ASSERT_TRUE(script.Answered(answered)) << "it is told to call again";
  script.Fail(102.1, absl::CancelledError("SIGTERM"));
  EXPECT_TRUE(script.Answered(held));
  script.Tick(102.2);
  EXPECT_FALSE(script->ended()) << "the second is about to call again";
  const uint64_t again = script.Register(102.3, TRAINER, "a", 2);
  EXPECT_TRUE(script.Answered(again)) << "with the failure";
  EXPECT_FALSE(script->ended()) << "the answers are on their way";
  script.Tick(102.4);
  EXPECT_TRUE(script->ended());
  EXPECT_EQ(script->failure(), absl::CancelledError("SIGTERM"));
}

TEST(MembershipTest, AJobThatFailsBeforeItRanWaitsFiveSecondsForWhoDoesNotCallAgain) {
  Script script(0, 2);
  script.Register(100, TRAINER, "a", 1);
  script.Tick(102);
  script.Fail(102.1, absl::CancelledError("SIGTERM"));
  script.Tick(107);
  EXPECT_FALSE(script->ended());
  script.Tick(107.1);
  EXPECT_TRUE(script->ended());
}

TEST(MembershipTest, TheJobIsCompleteWhenEveryTrainerLeftWell) {
  Script script(1, 2);
  script.Register(100, PS, "a", 1);
  script.Register(100, TRAINER, "a", 2);
  script.Register(100, TRAINER, "a", 3);
  script.Leave(101, TRAINER, 1);
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  script.Run(101, 110, {0, 1});
  EXPECT_EQ(script->phase(), Phase::FAILED);  // ps-0 did not beat

  Script good(1, 2);
  good.Register(100, PS, "a", 1);
  good.Register(100, TRAINER, "a", 2);
  good.Register(100, TRAINER, "a", 3);
  good.Leave(101, TRAINER, 1);
  good.Leave(101, TRAINER, 1);  // its first answer was lost
  EXPECT_EQ(good->phase(), Phase::RUNNING);
  good.Leave(101, TRAINER, 0);
  EXPECT_EQ(good->phase(), Phase::COMPLETED);
  EXPECT_FALSE(good->ended());
  good.Fail(102, absl::InternalError("too late"));
  good.Leave(102, PS, 0);
  EXPECT_TRUE(good->ended());
  EXPECT_EQ(good->phase(), Phase::COMPLETED);
}

TEST(MembershipTest, AMemberThatHasLeftNeedNotBeat) {
  Script script = Running();
  script.Leave(100.5, TRAINER, 0);
  script.Run(101, 120, {1});
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  script.Leave(120, TRAINER, 1);
  EXPECT_EQ(script->phase(), Phase::COMPLETED);
}

TEST(MembershipTest, AServerThatLeavesEarlyFailsTheJob) {
  Script script(1, 1);
  script.Register(100, PS, "a", 5);
  script.Register(100, TRAINER, "a", 6);
  script.Leave(101, PS, 0);
  EXPECT_EQ(script->failure(),
            absl::UnavailableError("ps-0 (a pid 5) left before the job was finished"));
}

TEST(MembershipTest, StrangersAreRefused) {
  Script script(0, 1);
  EXPECT_TRUE(
      absl::IsInvalidArgument(script.Refusal(script.Beat(100, TRAINER, 0))));  // not started
  script.Register(100, TRAINER, "a", 1);
  EXPECT_TRUE(absl::IsInvalidArgument(script.Refusal(script.Beat(100, TRAINER, 1))));
  EXPECT_TRUE(absl::IsInvalidArgument(script.Refusal(script.Leave(100, PS, 0))));
  EXPECT_EQ(script->phase(), Phase::RUNNING);
}

TEST(MembershipTest, HeartbeatsForOthersAreRefusedAndKeepNobodyAlive) {
  Script script = Running();
  for (double now = 100; now <= 107; now += 0.5) {
    script.Beat(now, TRAINER, 0);
    const uint64_t lie = script.Beat(now, TRAINER, 1, "another key");
    EXPECT_TRUE(absl::IsPermissionDenied(script.Refusal(lie))) << script.Refusal(lie);
    EXPECT_TRUE(absl::IsPermissionDenied(script.Refusal(script.Beat(now, TRAINER, 1, ""))));
    script.Tick(now);
  }
  EXPECT_EQ(script->phase(), Phase::FAILED);
  EXPECT_EQ(
      std::string(script->failure().message()).rfind("trainer-1 (host pid 11) has not answered", 0),
      0u)
      << script->failure();
}

TEST(MembershipTest, ALeaveForAnotherIsRefusedAndTheJobGoesOn) {
  Script script = Running();
  const uint64_t lie =
      script.Leave(101, TRAINER, 1, absl::UnavailableError("a lie"), "another key");
  EXPECT_TRUE(absl::IsPermissionDenied(script.Refusal(lie))) << script.Refusal(lie);
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  script.Leave(102, TRAINER, 1);
  script.Leave(102, TRAINER, 0);
  EXPECT_EQ(script->phase(), Phase::COMPLETED);
}

TEST(MembershipTest, ARegistrationAgainNeedsTheKeyOfTheFirst) {
  Script script = Running();
  const uint64_t lie = script.Register(101, TRAINER, "host", 11, -1, kJob, "another key");
  EXPECT_TRUE(absl::IsUnavailable(script.Refusal(lie))) << script.Refusal(lie);
  EXPECT_EQ(script.Rank(lie), -1);
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  EXPECT_EQ(script.Rank(script.Register(101, TRAINER, "host", 11)), 1);
}

// A container that was restarted has the host name, pid and address of the one before.
TEST(MembershipTest, ARestartedMemberEndsTheJobAndIsRefused) {
  Script script(1, 1);
  script.Register(100, PS, "pod", 1, 0, kJob, "first");
  script.Register(100, TRAINER, "host", 1);
  ASSERT_EQ(script->phase(), Phase::RUNNING);
  const uint64_t early = script.Register(102, PS, "pod", 1, 0, kJob, "second");
  EXPECT_TRUE(absl::IsUnavailable(script.Refusal(early))) << "the first may still live";
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  const uint64_t late = script.Register(103, PS, "pod", 1, 0, kJob, "second");
  EXPECT_EQ(script.Refusal(late),
            absl::AbortedError("this process has taken the place of another one in a job that has "
                               "begun: ps-0 (pod pid 1) was restarted, and its state is lost"));
  EXPECT_EQ(script->phase(), Phase::FAILED);
  EXPECT_EQ(script->failure(),
            absl::UnavailableError("ps-0 (pod pid 1) was restarted, and its state is lost"));
}

// A peer may notice the end of a member before the member returns.
TEST(MembershipTest, WhoReturnsToAFailedJobIsNotTakenForAWrongConfiguration) {
  Script script(0, 2);
  script.Register(100, TRAINER, "host", 1, 0, kJob, "a");
  script.Register(100, TRAINER, "pod", 1, 1, kJob, "first");
  script.Leave(101, TRAINER, 0, absl::UnavailableError("trainer-1 is gone"), "a");
  ASSERT_EQ(script->phase(), Phase::FAILED);
  const uint64_t restarted = script.Register(101, TRAINER, "pod", 1, 1, kJob, "second");
  EXPECT_TRUE(absl::IsAborted(script.Refusal(restarted))) << script.Refusal(restarted);
  // A process of another pid is told how the job ended.
  const uint64_t other = script.Register(101, TRAINER, "pod", 7, 1, kJob, "third");
  EXPECT_TRUE(script.Answered(other) && script.Refusal(other).ok()) << script.Refusal(other);
  EXPECT_EQ(script.Rank(other), -1);
}

TEST(MembershipTest, ATrainerThatIsStartedAgainAfterItsEndDoesNotEndTheJob) {
  Script script = Running();
  script.Leave(101, TRAINER, 1);
  const uint64_t again = script.Register(101, TRAINER, "host", 11, -1, kJob, "another key");
  EXPECT_TRUE(absl::IsAborted(script.Refusal(again))) << script.Refusal(again);
  EXPECT_EQ(script->phase(), Phase::RUNNING);
}

TEST(MembershipTest, ContainersOfOneHostNameWithPid1AreTwoMembers) {
  Script script(0, 2);
  const uint64_t first = script.Register(100, TRAINER, "node", 1, 1, kJob, "first");
  const uint64_t second = script.Register(100, TRAINER, "node", 1, 0, kJob, "second");
  EXPECT_EQ(script.Rank(first), 1);
  EXPECT_EQ(script.Rank(second), 0);
}

TEST(MembershipTest, WhoIsMissingIsTold) {
  Script script(2, 3);
  EXPECT_EQ(script->Missing(), "ps-0, ps-1, trainer-0, trainer-1, trainer-2");
  script.Register(100, PS, "a", 1, 1);
  script.Register(100, TRAINER, "b", 2, 0);
  script.Register(100, TRAINER, "b", 3);  // will get a free rank
  EXPECT_EQ(script->Missing(), "ps-0, trainer-2");
}

TEST(MembershipTest, AProcessThatFollowsADeadOneBeforeTheStartGetsThePlaceWhenItIsFree) {
  Script script(0, 2);
  const uint64_t dead = script.Register(100, TRAINER, "pod", 1, 0, kJob, "first");
  const uint64_t early = script.Register(101, TRAINER, "pod", 1, 0, kJob, "second");
  EXPECT_TRUE(absl::IsUnavailable(script.Refusal(early))) << script.Refusal(early);
  EXPECT_FALSE(script.Answered(dead)) << "the first one's call is its own";
  for (double now = 101; now <= 109; now += 0.5) script.Tick(now);
  const uint64_t again = script.Register(109, TRAINER, "pod", 1, 0, kJob, "second");
  script.Register(109, TRAINER, "pod", 2, 1);
  EXPECT_EQ(script.Rank(again), 0);
}

TEST(MembershipTest, WorkersCountAsMembersAndMayNotLeaveFirst) {
  Script script(0, 1, 2);
  script.Register(100, TRAINER, "a", 1);
  const uint64_t second = script.Register(100, WORKER, "b", 3, /*index=*/1);
  script.Tick(100.5);
  EXPECT_EQ(script->phase(), Phase::REGISTERING);
  const uint64_t third = script.Register(100.6, WORKER, "b", 4, /*index=*/2);
  EXPECT_EQ(script.Refusal(third).message(),
            "worker index 2 does not exist: this job has 2 workers");
  const uint64_t first = script.Register(100.7, WORKER, "b", 5);
  EXPECT_EQ(script->phase(), Phase::RUNNING);
  EXPECT_EQ(script.Rank(second), 1);
  EXPECT_EQ(script.Rank(first), 0);
  EXPECT_EQ(script->members().back().role, WORKER);
  script.Leave(101, WORKER, 0);
  EXPECT_EQ(script->phase(), Phase::FAILED);
  EXPECT_EQ(script->failure().message(), "worker-0 (b pid 5) left before the job was finished");
}

TEST(MembershipTest, AMissingWorkerIsNamed) {
  Script script(0, 1, 1);
  script.Register(100, TRAINER, "a", 1);
  for (double now = 100; now < 161; now += 0.5) {
    script.Register(now, TRAINER, "a", 1);
    script.Tick(now);
  }
  EXPECT_EQ(script->phase(), Phase::FAILED);
  EXPECT_EQ(script->failure().message(),
            "only 0 of 1 worker registered within 60 s: missing worker-0");
}

}  // namespace
}  // namespace tandem::rpc
