// The host: steps over several workers, parked calls, norms and failure.
#include "ps/server/table_host.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "ps/wire/saturating.h"
#include "tests/ps/server/host_calls.h"

namespace tandem::ps {
namespace {

using TableHostTest = HostCallsTest;

TEST_P(TableHostTest, CommitAppliesWhenTheLastTrainerCommits) {
  Create(2);
  const auto before = Rows({7});
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok());
  ASSERT_TRUE(Push({1, 1, 1, 1}, {7}, {2, 2, 2, 2}).Get().ok());
  const Status first = Commit(0, 1);
  Settle();
  EXPECT_FALSE(first.ready());
  EXPECT_EQ(Rows({7}), before);
  const Status second = Commit(1, 1);
  EXPECT_TRUE(first.Get().ok() && second.Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 3);
  EXPECT_TRUE(Commit(1, 1).Get().ok()) << "the answer was lost and the commit comes again";
  EXPECT_EQ(Rows({7})[0], before[0] - 3);
}

TEST_P(TableHostTest, BeyondBspEachTrainersCommitIsAnUpdateOfItsOwn) {
  Create(2, ConsistencySpec::ASP);
  const float start = [&] {
    float row = 0;
    EXPECT_TRUE(Pull(0, {7}, &row, true, 2).Get().ok());
    return row;
  }();
  const auto before = Rows({7, 8});
  for (uint32_t trainer : {0u, 1u}) {
    ASSERT_TRUE(Push({trainer, 1, trainer, 1}, {7}, {1, 1, 1, 1}).Get().ok());
    ASSERT_TRUE(Push({trainer, 1, trainer, 2}, {7}, {2}, 2).Get().ok());
  }
  ASSERT_TRUE(Commit(0, 1, 0.125f).Get().ok()) << "waits for nobody";
  EXPECT_EQ(Rows({7})[0], before[0] - 0.125f) << "trainer 0's gradient alone";
  ASSERT_TRUE(Push({0, 2, 0, 3}, {8}, {1, 1, 1, 1}).Get().ok());
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok()) << "sent again";
  ASSERT_TRUE(Push({1, 1, 1, 1}, {7}, {1, 1, 1, 1}).Get().ok()) << "sent again";
  Status skipped;
  host_.Commit({0}, {2, {}, 1, true}, skipped.Callback());
  ASSERT_TRUE(skipped.Get().ok());
  ASSERT_TRUE(Commit(1, 1, 0.125f).Get().ok());
  ASSERT_TRUE(Commit(1, 1, 0.125f).Get().ok()) << "sent again";
  EXPECT_EQ(Rows({7, 8})[0], before[0] - 0.25f);
  EXPECT_EQ(Rows({7, 8})[4], before[4]) << "its step was skipped";
  float row = 0;
  ASSERT_TRUE(Pull(0, {7}, &row, true, 2).Get().ok());
  // Adam ran twice as step 1: first by the rate, then by the rate times 1.9 / sqrt(1.999). One run
  // with the sum would move by the rate.
  EXPECT_NEAR(row, start - 0.125f * 2.3438f, 1e-4f);
}

TEST_P(TableHostTest, BeyondBspTheNormIsOfTheCallersGradientsAndLeavesThemPending) {
  Create(2, ConsistencySpec::SSP, 1);
  const auto before = Rows({7});
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7, 8}, {1, 0, 0, 0, 0, 2, 0, 0}).Get().ok());
  ASSERT_TRUE(Push({0, 1, 1, 2}, {7}, {2, 0, 0, 0}).Get().ok());
  ASSERT_TRUE(Push({1, 1, 2, 1}, {7}, {5, 0, 0, 0}).Get().ok());
  for (int i = 0; i < 2; ++i) {
    Answer<absl::StatusOr<absl::uint128>> norm;
    host_.GradientNorm({0}, 1, norm.Callback());
    EXPECT_EQ(FromFixedPoint(*norm.Get()), 13);
  }
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 3);
  ASSERT_TRUE(Commit(1, 1).Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 8);
}

TEST_P(TableHostTest, StepsUnderWayKeepTheirPushesApart) {
  Create(1, ConsistencySpec::PERMIT, 2);
  const auto before = Rows({7});
  std::vector<float> second(4), third(4);
  EXPECT_TRUE(Pull(2, {7}, second.data()).Get().ok()) << "before the commit of step 1";
  const Status pull3 = Pull(3, {7}, third.data());
  ASSERT_TRUE(Push({0, 2, 0, 2}, {7}, {4, 4, 4, 4}).Get().ok());
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok());
  EXPECT_FALSE(pull3.ready());
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  ASSERT_TRUE(pull3.Get().ok());
  EXPECT_EQ(second[0], before[0]);
  EXPECT_EQ(third[0], before[0] - 1) << "step 2 is not committed";
  ASSERT_TRUE(Commit(0, 2).Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 5);
}

TEST_P(TableHostTest, PullAheadWaitsForItsStepAndSeesItsPushes) {
  Create(1);
  const auto before = Rows({7, 8});
  std::vector<float> next(8), after_next(8);
  const Status pull2 = Pull(2, {7, 8}, next.data());
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok());
  EXPECT_FALSE(pull2.ready());
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  ASSERT_TRUE(pull2.Get().ok());
  const Status pull3 = Pull(3, {7, 8}, after_next.data());
  EXPECT_EQ(next[0], before[0] - 1);
  EXPECT_EQ(next[4], before[4]);
  Settle();
  EXPECT_FALSE(pull3.ready());
  ASSERT_TRUE(Push({0, 2, 0, 2}, {8}, {1, 1, 1, 1}).Get().ok());
  ASSERT_TRUE(Commit(0, 2).Get().ok());
  ASSERT_TRUE(pull3.Get().ok());
  EXPECT_EQ(after_next[4], before[4] - 1);
}

// PaddlePaddle/Paddle#10155: a server's memory grows with its clients' requests.
TEST_P(TableHostTest, PullsThatWaitAreBoundedForEachTrainer) {
  Create(2);
  const uint64_t id = 7;
  float row[4];
  const auto pull = [&](const std::optional<Caller>& caller) {
    Status answer;
    host_.Pull(caller, 2, true, {{1, 1, &id, row}}, answer.Callback());
    return answer;
  };
  std::vector<Status> waiting;
  for (size_t i = 0; i < ParkedPulls::kMaxOfTrainer; ++i) waiting.push_back(pull(Caller{0}));
  const absl::Status refused = pull(Caller{0}).Get();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_NE(refused.message().find("1024 pulls of trainer 0 wait"), absl::string_view::npos)
      << refused;
  EXPECT_EQ(Pull(3, {7}, row).Get().code(), absl::StatusCode::kInvalidArgument);
  waiting.push_back(pull(Caller{1}));
  waiting.push_back(pull(std::nullopt));
  EXPECT_FALSE(waiting.back().ready());
  Commit(0, 1);
  ASSERT_TRUE(Commit(1, 1).Get().ok());
  for (const Status& answer : waiting) EXPECT_TRUE(answer.Get().ok()) << answer.Get();
  waiting = {};
}

TEST_P(TableHostTest, DisagreeingCommitsAllFailAndTheStepCanBeCommittedAgain) {
  Create(2);
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok());
  const auto before = Rows({7});
  const Status first = Commit(0, 1, 0.5f), second = Commit(1, 1, 0.25f);
  EXPECT_TRUE(absl::IsFailedPrecondition(first.Get()));
  EXPECT_TRUE(absl::IsFailedPrecondition(second.Get()));
  EXPECT_EQ(Rows({7}), before);
  const Status again = Commit(0, 1, 0.5f);
  EXPECT_TRUE(Commit(1, 1, 0.5f).Get().ok());
  EXPECT_TRUE(again.Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 0.5f);
}

TEST_P(TableHostTest, GradientNormWaitsForEveryTrainerAndAnswersAgain) {
  Create(2);
  using Norm = Answer<absl::StatusOr<absl::uint128>>;
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7, 8}, {1, 0, 0, 0, 0, 2, 0, 0}).Get().ok());
  ASSERT_TRUE(Push({1, 1, 1, 1}, {7}, {2, 0, 0, 0}).Get().ok());
  Norm first, second, again, late;
  host_.GradientNorm({0}, 1, first.Callback());
  Settle();
  EXPECT_FALSE(first.ready());
  host_.GradientNorm({1}, 1, second.Callback());
  EXPECT_EQ(FromFixedPoint(*first.Get()), 13);
  EXPECT_EQ(FromFixedPoint(*second.Get()), 13);
  host_.GradientNorm({0}, 1, again.Callback());
  EXPECT_EQ(FromFixedPoint(*again.Get()), 13);
  const Status commits[] = {Commit(0, 1), Commit(1, 1)};
  EXPECT_TRUE(commits[0].Get().ok() && commits[1].Get().ok());
  host_.GradientNorm({0}, 1, late.Callback());
  EXPECT_TRUE(absl::IsFailedPrecondition(late.Get().status()));
}

TEST_P(TableHostTest, NormThatNotEveryTrainerAsksForFailsAtTheCommit) {
  Create(2);
  Answer<absl::StatusOr<absl::uint128>> norm;
  host_.GradientNorm({0}, 1, norm.Callback());
  Commit(0, 1);
  EXPECT_TRUE(Commit(1, 1).Get().ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(norm.Get().status()));
}

TEST_P(TableHostTest, FailCompletesEverythingParkedAndRefusesTheRest) {
  Create(2);
  std::vector<float> rows(4);
  const Status pull = Pull(2, {7}, rows.data()), commit = Commit(0, 1);
  Answer<absl::StatusOr<absl::uint128>> norm;
  host_.GradientNorm({0}, 1, norm.Callback());
  host_.Fail(absl::AbortedError("trainer 1 is gone"));
  for (const absl::Status& status :
       {pull.Get(), commit.Get(), norm.Get().status(), Pull(0, {7}, rows.data()).Get(),
        Commit(1, 1).Get(), Push({1, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get()}) {
    EXPECT_EQ(status, absl::AbortedError("trainer 1 is gone"));
  }
}

TEST_P(TableHostTest, EmptyCallsComplete) {
  Create(1);
  EXPECT_TRUE(Pull(1, {}, nullptr).Get().ok());
  EXPECT_TRUE(Push({0, 1, 0, 1}, {}, {}).Get().ok());
  EXPECT_TRUE(Commit(0, 1).Get().ok());
  EXPECT_EQ(Hash().num_rows, 0u);
}

TEST_P(TableHostTest, ManyThreadsPullAndPushAtOnce) {
  constexpr uint32_t kTrainers = 4;
  constexpr uint64_t kSteps = 5;
  Create(kTrainers);
  const auto before = Rows(ids_);
  std::vector<std::thread> threads;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    threads.emplace_back([&, trainer] {
      std::vector<float> rows(200);
      for (uint64_t step = 1; step <= kSteps; ++step) {
        ASSERT_TRUE(Pull(step, ids_, rows.data()).Get().ok());
        ASSERT_NEAR(rows[0], before[0] - static_cast<float>(kTrainers * (step - 1)), 1e-5);
        ASSERT_TRUE(
            Push({trainer, step, trainer, step}, ids_, std::vector<float>(200, 1)).Get().ok());
        ASSERT_TRUE(Commit(trainer, step).Get().ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto after = Rows(ids_);
  for (size_t i = 0; i < after.size(); ++i) {
    float expected = before[i];
    for (uint64_t step = 0; step < kSteps; ++step) expected -= 4;
    EXPECT_EQ(after[i], expected);
  }
}

TEST_P(TableHostTest, APullBeyondTheBoundOfSspWaitsForTheSlowestTrainer) {
  constexpr uint32_t kBound = 2;
  Create(2, ConsistencySpec::SSP, kBound);
  const auto before = Rows({7});
  std::vector<float> rows(4);
  for (uint64_t step = 1; step <= kBound + 1; ++step) {
    ASSERT_TRUE(Pull(step, {7}, rows.data()).Get().ok()) << "within the bound, step " << step;
    ASSERT_TRUE(Push({0, step, 0, step}, {7}, {1, 1, 1, 1}).Get().ok());
    ASSERT_TRUE(Commit(0, step).Get().ok());
  }
  const Status beyond = Pull(kBound + 2, {7}, rows.data());
  Settle();
  EXPECT_FALSE(beyond.ready()) << "trainer 1 has committed nothing";
  ASSERT_TRUE(Push({1, 1, 0, 1}, {7}, {10, 10, 10, 10}).Get().ok());
  ASSERT_TRUE(Commit(1, 1).Get().ok());
  ASSERT_TRUE(beyond.Get().ok());
  EXPECT_EQ(rows[0], before[0] - 3 - 10);
}

INSTANTIATE_TEST_SUITE_P(Workers, TableHostTest, testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

// A host whose worker a test can hold: calls that come meanwhile wait in the mailbox.
class BusyTableHostTest : public HostCallsTest {
 protected:
  ~BusyTableHostTest() override { LetGo(); }
  void Hold() {
    absl::Notification held;
    host_.Hash([&held, let_go = let_go_](const absl::StatusOr<HashResult>&) {
      held.Notify();
      EXPECT_TRUE(let_go->WaitForNotificationWithTimeout(absl::Seconds(20)));
    });
    ASSERT_TRUE(held.WaitForNotificationWithTimeout(absl::Seconds(20)));
  }
  void LetGo() {
    if (!let_go_->HasBeenNotified()) let_go_->Notify();
  }

 private:
  const std::shared_ptr<absl::Notification> let_go_ = std::make_shared<absl::Notification>();
};

TEST_P(BusyTableHostTest, ARepeatedCommitIsAnsweredWhenTheFirstIsApplied) {
  Create(1);
  const auto before = Rows({7});
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok());
  Hold();
  const Status first = Commit(0, 1), repeated = Commit(0, 1);
  EXPECT_FALSE(first.ready());
  EXPECT_FALSE(repeated.ready()) << "its step is not applied yet";
  LetGo();
  EXPECT_TRUE(repeated.Get().ok()) << repeated.Get();
  EXPECT_TRUE(first.ready() && first.Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 1);
}

TEST_P(BusyTableHostTest, ANormThatIsKnownAfterItsStepsCommitIsNotTheNextSteps) {
  Create(1);
  const auto norm_of = [&](uint64_t step) {
    Answer<absl::StatusOr<absl::uint128>> answer;
    host_.GradientNorm({0}, step, answer.Callback());
    return answer;
  };
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {2, 0, 0, 0}).Get().ok());
  Hold();
  const auto first = norm_of(1);
  const Status committed = Commit(0, 1);
  LetGo();
  ASSERT_TRUE(committed.Get().ok()) << committed.Get();
  ASSERT_TRUE(first.Get().ok()) << first.Get().status();
  EXPECT_EQ(FromFixedPoint(*first.Get()), 4);
  ASSERT_TRUE(Push({0, 2, 0, 2}, {7}, {3, 0, 0, 0}).Get().ok());
  const auto second = norm_of(2);
  ASSERT_TRUE(second.Get().ok()) << second.Get().status();
  EXPECT_EQ(FromFixedPoint(*second.Get()), 9);
}

INSTANTIATE_TEST_SUITE_P(Workers, BusyTableHostTest, testing::Values(1),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(TableHostCloseTest, DestructionCompletesWhatIsParked) {
  Answer<absl::Status> created, parked;
  std::vector<float> row(4);
  const uint64_t id = 7;
  {
    TableHost host(2);
    host.CreateTables({MakeTableSpec(1, 4)}, 1, created.Callback());
    host.Pull(std::nullopt, 2, true, {{1, 1, &id, row.data()}}, parked.Callback());
  }
  EXPECT_TRUE(created.Get().ok());
  EXPECT_TRUE(absl::IsCancelled(parked.Get()));
}

}  // namespace
}  // namespace tandem::ps
