// The host: steps over several workers, parked calls, repetitions, refusals that change nothing,
// and failure.
#include "ps/server/table_host.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "ps/wire/saturating.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

// Collects one answer; Get waits for it.
template <class T>
class Answer {
 public:
  std::function<void(T)> Callback() {
    return [state = state_](T value) {
      EXPECT_FALSE(state->done.HasBeenNotified()) << "a callback ran twice";
      state->value = std::move(value);
      state->done.Notify();
    };
  }
  bool ready() const { return state_->done.HasBeenNotified(); }
  const T& Get() const {
    EXPECT_TRUE(state_->done.WaitForNotificationWithTimeout(absl::Seconds(20))) << "no answer";
    return state_->value;
  }

 private:
  struct State {
    absl::Notification done;
    T value = absl::UnknownError("not answered");
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};
using Status = Answer<absl::Status>;

class TableHostTest : public testing::TestWithParam<int> {
 protected:
  TableHostTest() : host_(GetParam()) {}

  Status TryCreate(uint32_t num_trainers, ConsistencySpec::Mode mode, uint32_t staleness) {
    ConsistencySpec consistency;
    consistency.set_mode(mode);
    consistency.set_staleness(staleness);
    Status created;
    host_.CreateTables({MakeTableSpec(1, 4), MakeTableSpec(2, 1, SPARSE_ADAM)}, num_trainers,
                       created.Callback(), consistency);
    return created;
  }
  void Create(uint32_t num_trainers, ConsistencySpec::Mode mode = ConsistencySpec::BSP,
              uint32_t staleness = 0) {
    const Status created = TryCreate(num_trainers, mode, staleness);
    ASSERT_TRUE(created.Get().ok()) << created.Get();
  }
  Status Pull(uint64_t step, const std::vector<uint64_t>& ids, float* rows, bool create = true,
              uint32_t table = 1) {
    Status answer;
    host_.Pull(Caller{}, step, create, {{table, ids.size(), ids.data(), rows}}, answer.Callback());
    return answer;
  }
  std::vector<float> Rows(const std::vector<uint64_t>& ids) {
    std::vector<float> rows(ids.size() * 4);
    EXPECT_TRUE(Pull(0, ids, rows.data(), false).Get().ok());
    return rows;
  }
  Status Push(PushPlace place, const std::vector<uint64_t>& ids,
              const std::vector<float>& gradients, uint32_t table = 1) {
    Status answer;
    auto kept = std::make_shared<const std::vector<float>>(gradients);
    host_.Accumulate(place, {{table, ids.size(), ids.data(), kept->data()}}, kept,
                     answer.Callback());
    return answer;
  }
  static CommitArgs Args(uint64_t step, float rate = 1) {
    return {step, {{1, rate}, {2, rate}}, 1, false};
  }
  Status Commit(uint32_t trainer, uint64_t step, float rate = 1) {
    Status answer;
    host_.Commit({trainer}, Args(step, rate), answer.Callback());
    return answer;
  }
  Status PushAndCommit(PushPlace place, const std::vector<uint64_t>& ids,
                       const std::vector<float>& gradients, const CommitArgs& args) {
    Status answer;
    auto kept = std::make_shared<const std::vector<float>>(gradients);
    host_.AccumulateAndCommit(place, {{1, ids.size(), ids.data(), kept->data()}}, kept, args,
                              answer.Callback());
    return answer;
  }
  HashResult Hash() {
    Answer<absl::StatusOr<HashResult>> answer;
    host_.Hash(answer.Callback());
    return *answer.Get();
  }
  std::map<uint32_t, ValueGuardStatistics> ValueGuards() {
    Answer<absl::StatusOr<StatisticsReply>> answer;
    host_.Statistics(answer.Callback());
    std::map<uint32_t, ValueGuardStatistics> guards;
    for (const TableStatistics& table : answer.Get()->tables())
      guards[table.number()] = GuardOf(table);
    return guards;
  }
  // Returns once all earlier work is done.
  void Settle() { Hash(); }

  TableHost host_;
  const std::vector<uint64_t> ids_ = MakeIds(1, 50);
};

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

TEST_P(TableHostTest, FiniteGradientsWhoseSumOverflowsEndTheRunOfAll) {
  for (const auto mode : {ConsistencySpec::BSP, ConsistencySpec::ASP}) {
    TableHost host(GetParam());
    Status created, other, overflows;
    ConsistencySpec consistency;
    consistency.set_mode(mode);
    host.CreateTables({MakeTableSpec(1, 1)}, 2, created.Callback(), consistency);
    ASSERT_TRUE(created.Get().ok());
    const uint64_t id = 7;
    const float large = 3e38f;
    for (uint64_t sequence : {1, 2}) {
      Status pushed;
      host.Accumulate({1, 1, 0, sequence}, {{1, 1, &id, &large}}, nullptr, pushed.Callback());
      ASSERT_TRUE(pushed.Get().ok()) << pushed.Get();
    }
    const CommitArgs args{1, {{1, 1.0}}, 1, false};
    if (mode == ConsistencySpec::BSP) host.Commit({0}, args, other.Callback());
    host.Commit({1}, args, overflows.Callback());
    EXPECT_EQ(overflows.Get().code(), absl::StatusCode::kOutOfRange) << overflows.Get();
    EXPECT_NE(overflows.Get().message().find("id 7"), absl::string_view::npos) << overflows.Get();
    if (mode == ConsistencySpec::BSP) {
      EXPECT_EQ(other.Get(), overflows.Get());
    }
    Answer<absl::StatusOr<HashResult>> hash;
    host.Hash(hash.Callback());
    EXPECT_EQ(hash.Get().status(), overflows.Get()) << "rows of two steps are nobody's";
  }
}

TEST_P(TableHostTest, RefusesIdsAndShardsOfAnotherServer) {
  Create(1);
  const uint64_t mine = 7, other = 8;
  ShardSet owned;
  owned.set(rpc::VirtualShard(1, mine));
  host_.Own(owned, 5);
  std::vector<float> rows(8);
  const auto expect_refused = [](const Status& answer) {
    EXPECT_EQ(answer.Get().code(), absl::StatusCode::kFailedPrecondition) << answer.Get();
    EXPECT_NE(answer.Get().message().find("not the owner, map version 5"), absl::string_view::npos)
        << answer.Get();
  };
  expect_refused(Pull(1, {mine, other}, rows.data()));
  expect_refused(Pull(0, {other}, rows.data(), false));
  expect_refused(Push({0, 1, 0, 1}, {mine, other}, rows));
  const uint32_t row_of[] = {0};
  Status sums, loaded;
  host_.Pull(Caller{}, 1, true,
             {{.table = 1, .count = 1, .ids = &other, .rows = rows.data(), .row_of = row_of}},
             sums.Callback());
  expect_refused(sums);
  LoadArgs args{.step = 1, .folder = "/", .files = {}, .shards = {}};
  args.shards.emplace_back().set_count(1024);
  host_.Load(args, loaded.Callback());
  expect_refused(loaded);
  EXPECT_TRUE(Push({0, 1, 0, 1}, {mine}, {1, 1, 1, 1}).Get().ok())
      << "its own ids count, and the refused push did not";
  EXPECT_TRUE(Commit(0, 1).Get().ok());
  EXPECT_EQ(Hash().num_rows, 1u);
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

TEST_P(TableHostTest, APushWhoseCommitCouldNotFollowIsRefusedWithIt) {
  Create(1, ConsistencySpec::PERMIT, 4);
  const auto before = Rows({7});
  const std::vector<float> ones(4, 1), broken(4, std::nanf(""));
  const Status early = PushAndCommit({0, 2, 0, 2}, {7}, ones, Args(2));
  EXPECT_TRUE(absl::IsInvalidArgument(early.Get())) << early.Get();
  const Status unknown_table =
      PushAndCommit({0, 1, 0, 3}, {7}, ones, {1, {{1, 1}, {9, 1}}, 1, false});
  EXPECT_TRUE(absl::IsInvalidArgument(unknown_table.Get())) << unknown_table.Get();
  const Status rejected = PushAndCommit({0, 1, 0, 4}, {7}, broken, Args(1));
  EXPECT_TRUE(absl::IsOutOfRange(rejected.Get())) << rejected.Get();
  // Pushed again, the gradients count once.
  for (uint64_t step : {1, 2}) {
    const Status committed = PushAndCommit({0, step, 0, 10 + step}, {7}, ones, Args(step));
    EXPECT_TRUE(committed.Get().ok()) << committed.Get();
  }
  const Status again = PushAndCommit({0, 2, 0, 12}, {7}, ones, Args(2));
  EXPECT_TRUE(again.Get().ok()) << again.Get();
  EXPECT_EQ(Rows({7})[0], before[0] - 1 - 1);
}

TEST_P(TableHostTest, TheConsistencyOfAJobIsOne) {
  EXPECT_TRUE(absl::IsInvalidArgument(TryCreate(2, ConsistencySpec::PERMIT, 0).Get()));
  Create(2, ConsistencySpec::SSP, 3);
  EXPECT_TRUE(TryCreate(2, ConsistencySpec::SSP, 3).Get().ok());
  const Status other = TryCreate(2, ConsistencySpec::SSP, 4),
               none = TryCreate(2, ConsistencySpec::BSP, 0);
  EXPECT_EQ(other.Get(),
            absl::FailedPreconditionError(
                "the job's consistency is SSP with staleness 3, this request says SSP with "
                "staleness 4"));
  EXPECT_TRUE(absl::IsFailedPrecondition(none.Get())) << none.Get();
}

TEST_P(TableHostTest, RowsAreSavedWhenEveryTrainerHasCommittedTheStep) {
  Create(2, ConsistencySpec::ASP);
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  const support::TempFolder folder;
  const auto save = [&] {
    Answer<absl::StatusOr<std::vector<SavedFile>>> saved;
    host_.Save(1, folder.path(), 0, saved.Callback());
    return saved.Get().status();
  };
  EXPECT_EQ(save(), absl::FailedPreconditionError(
                        "rows of step 1 cannot be saved: the last step applied of trainer 1 is 0"));
  ASSERT_TRUE(Commit(1, 1).Get().ok());
  EXPECT_TRUE(save().ok()) << save();
}

TEST_P(TableHostTest, StatisticsCountWhatCameAndHowOldItWas) {
  Create(2, ConsistencySpec::SSP, 20);
  std::vector<float> rows(200);
  ASSERT_TRUE(Pull(0, ids_, rows.data()).Get().ok());
  for (uint64_t step = 1; step <= 20; ++step) {
    ASSERT_TRUE(Pull(step, {7}, rows.data()).Get().ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(Push({0, step, 0, step}, {7}, {1, 1, 1, 1}).Get().ok());
    ASSERT_TRUE(Commit(0, step).Get().ok());
  }
  const Status waiting = Pull(22, {7}, rows.data());
  Answer<absl::StatusOr<StatisticsReply>> answer;
  host_.Statistics(answer.Callback());
  ASSERT_TRUE(answer.Get().ok());
  const StatisticsReply& statistics = *answer.Get();
  EXPECT_EQ(statistics.pulls(), 21u) << "one waits";
  EXPECT_EQ(statistics.pushes(), 20u);
  EXPECT_EQ(statistics.repeated_pushes(), 20u);
  EXPECT_EQ(statistics.commits(), 20u);
  ASSERT_EQ(statistics.staleness().counts_size(), 17);
  for (int steps = 0; steps < 16; ++steps) EXPECT_EQ(statistics.staleness().counts(steps), 1u);
  EXPECT_EQ(statistics.staleness().counts(16), 4u) << "16 to 19";
  EXPECT_EQ(statistics.staleness().max(), 19u);
  EXPECT_EQ(statistics.outstanding().counts(1), 20u);
  EXPECT_EQ(std::vector<uint64_t>(statistics.clocks().begin(), statistics.clocks().end()),
            (std::vector<uint64_t>{20, 0}));
  ASSERT_EQ(statistics.tables_size(), 2);
  const size_t distinct = ids_.size() + (std::find(ids_.begin(), ids_.end(), 7) == ids_.end());
  EXPECT_EQ(statistics.tables(0).rows(), distinct);
  EXPECT_EQ(statistics.tables(0).name(), "table1");
  EXPECT_GE(statistics.tables(0).memory_bytes(), distinct * 4 * sizeof(float));
  EXPECT_NEAR(
      statistics.tables(0).bytes_per_row(),
      static_cast<double>(statistics.tables(0).memory_bytes()) / static_cast<double>(distinct),
      1e-9);
  EXPECT_EQ(statistics.tables(1).number(), 2u);
  EXPECT_EQ(statistics.tables(1).rows(), 0u);
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

TEST_P(TableHostTest, RepeatedPushCountsOnce) {
  Create(1);
  const auto before = Rows({7});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push({0, 1, 0, 5}, {7}, {1, 1, 1, 1}).Get().ok());
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  ASSERT_TRUE(Push({0, 1, 0, 5}, {7}, {1, 1, 1, 1}).Get().ok()) << "known after its step too";
  ASSERT_TRUE(Commit(0, 2).Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 1);
}

TEST_P(TableHostTest, PushForAStepThatIsAppliedWithoutItIsRefusedNotLost) {
  Create(1);
  ASSERT_TRUE(Push({0, 1, 0, 5}, {7}, {1, 1, 1, 1}).Get().ok());
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  const auto before = Rows({7, 8});
  for (const PushPlace& place : {PushPlace{0, 1, 0, 6}, PushPlace{0, 1, 0, 4}}) {
    const Status late = Push(place, {7}, {1, 1, 1, 1});
    EXPECT_TRUE(absl::IsFailedPrecondition(late.Get())) << late.Get();
    EXPECT_NE(late.Get().message().find("gradients would be lost"), absl::string_view::npos)
        << late.Get();
  }
  const Status reused = Push({0, 2, 0, 5}, {7}, {1, 1, 1, 1});
  EXPECT_TRUE(absl::IsFailedPrecondition(reused.Get())) << reused.Get();
  ASSERT_TRUE(Commit(0, 2).Get().ok());
  EXPECT_EQ(Rows({7, 8}), before);
}

TEST_P(TableHostTest, RepeatedPushWithRowsOfMoreShardsAddsTheseOnly) {
  // Imitates a sender that has since heard that another shard of the push lives here.
  Create(2);
  ASSERT_NE(rpc::VirtualShard(1, 7), rpc::VirtualShard(1, 8));
  const auto before = Rows({7, 8});
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok());
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(Push({0, 1, 0, 1}, {7, 8}, {1, 1, 1, 1, 4, 4, 4, 4}).Get().ok());
  ASSERT_TRUE(Push({1, 1, 1, 1}, {8}, {2, 2, 2, 2}).Get().ok())
      << "another trainer's sequences are its own";
  const Status commits[] = {Commit(0, 1), Commit(1, 1)};
  ASSERT_TRUE(commits[0].Get().ok() && commits[1].Get().ok());
  const auto after = Rows({7, 8});
  EXPECT_EQ(after[0], before[0] - 1);
  EXPECT_EQ(after[4], before[4] - 6);
}

TEST_P(TableHostTest, CallsOfAnOldIncarnationAreRefusedAndChangeNothing) {
  Create(2);
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7}, {1, 1, 1, 1}).Get().ok());
  const Status others = Commit(0, 1);
  ASSERT_TRUE(Push({1, 1, 1, 1, 3}, {7}, {2, 2, 2, 2}).Get().ok());
  Status pull, commit;
  float row[4];
  const uint64_t id = 7;
  host_.Pull(Caller{1, 2}, 0, true, {{1, 1, &id, row}}, pull.Callback());
  Answer<absl::StatusOr<absl::uint128>> norm;
  host_.GradientNorm({1, 2}, 1, norm.Callback());
  host_.Commit({1, 2}, {1, {{1, 1.0f}, {2, 1.0f}}, 1, false}, commit.Callback());
  for (const absl::Status& status : {pull.Get(), norm.Get().status(), commit.Get(),
                                     Push({1, 1, 1, 2, 2}, {7}, {9, 9, 9, 9}).Get()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find("incarnation 2 of trainer 1"), absl::string_view::npos)
        << status;
    EXPECT_NE(status.message().find("its incarnation is 3"), absl::string_view::npos) << status;
  }
  EXPECT_FALSE(others.ready()) << "trainer 0's commit goes on waiting";
  const auto before = Rows({7});
  Status last;
  host_.Commit({1, 3}, {1, {{1, 1.0f}, {2, 1.0f}}, 1, false}, last.Callback());
  ASSERT_TRUE(last.Get().ok() && others.Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 3);
}

TEST_P(TableHostTest, RefusedInputChangesNothing) {
  Create(1);
  ASSERT_TRUE(Push({0, 1, 0, 1}, ids_, MakeValues(1, 200)).Get().ok());
  const auto refused = [&](const Status& answer, const char* word) {
    EXPECT_TRUE(absl::IsInvalidArgument(answer.Get())) << answer.Get();
    EXPECT_NE(answer.Get().message().find(word), absl::string_view::npos) << answer.Get();
  };
  std::vector<float> rows(400), gradients(400, 1), broken = gradients;
  std::vector<uint64_t> with_zero = ids_, twice = ids_;
  with_zero[49] = 0;
  twice[49] = twice[0];
  broken[199] = std::numeric_limits<float>::infinity();
  refused(Pull(0, with_zero, rows.data()), "padding");
  refused(Pull(0, twice, rows.data()), "twice");
  refused(Pull(0, ids_, rows.data(), true, 9), "no table 9");
  refused(Push({0, 1, 0, 2}, with_zero, gradients), "padding");
  refused(Push({0, 1, 0, 2}, twice, gradients), "twice");
  const Status rejected = Push({0, 1, 0, 2}, ids_, broken);
  EXPECT_TRUE(absl::IsOutOfRange(rejected.Get())) << rejected.Get();
  refused(Push({0, 1, 0, 2}, ids_, gradients, 9), "no table 9");
  refused(Push({0, 3, 0, 2}, ids_, gradients), "step 3");
  refused(Push({5, 1, 0, 1}, ids_, gradients), "trainer 5");
  refused(Push({0, 1, 0, uint64_t{1} << 40}, ids_, gradients), "sequence");
  Status commit;
  host_.Commit({0}, {1, {{1, 1.0f}}, 1, false}, commit.Callback());
  refused(commit, "table2");
  refused(Commit(0, 1, std::nanf("")), "not finite");
  EXPECT_EQ(Hash().num_rows, 0u);
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  const HashResult hash = Hash();
  EXPECT_EQ(hash.num_rows, ids_.size());

  TableHost clean(1);
  Status created, pushed, committed;
  clean.CreateTables({MakeTableSpec(1, 4), MakeTableSpec(2, 1, SPARSE_ADAM)}, 1,
                     created.Callback());
  const auto gradient = std::make_shared<std::vector<float>>(MakeValues(1, 200));
  clean.Accumulate({0, 1, 0, 1}, {{1, 50, ids_.data(), gradient->data()}}, gradient,
                   pushed.Callback());
  clean.Commit({0}, {1, {{1, 1.0f}, {2, 1.0f}}, 1, false}, committed.Callback());
  Answer<absl::StatusOr<HashResult>> expected;
  clean.Hash(expected.Callback());
  EXPECT_EQ(hash.hash, expected.Get()->hash);
}

TEST_P(TableHostTest, OneBadSegmentRefusesTheWholeMessage) {
  Create(1);
  const auto gradients = std::make_shared<std::vector<float>>(4, 1.0f);
  const std::vector<uint64_t> good = {3}, bad = {0};
  Status answer;
  host_.Accumulate({0, 1, 0, 1},
                   {{1, 1, good.data(), gradients->data()}, {2, 1, bad.data(), gradients->data()}},
                   gradients, answer.Callback());
  EXPECT_TRUE(absl::IsInvalidArgument(answer.Get()));
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  EXPECT_EQ(Hash().num_rows, 0u);
}

TEST_P(TableHostTest, RejectedValuesAreCountedAndTheFirstIsNamed) {
  Create(2);
  const absl::Status refused =
      Push({1, 1, 0, 1}, {7, 8}, {1, 1, 1, 1, 1, std::nanf(""), 1, 1}).Get();
  EXPECT_EQ(refused.message(),
            "table table1: the gradient of id 8 is not finite (NaN or infinity), from trainer 1 in "
            "step 1");
  EXPECT_TRUE(absl::IsOutOfRange(Push({0, 1, 0, 1}, {9}, {INFINITY, 1, 1, 1}).Get()));
  const auto guards = ValueGuards();
  EXPECT_EQ(guards.at(1).rejected, 2u);
  EXPECT_EQ(guards.at(1).first->id, 9u) << "of one step, the first trainer's";
  EXPECT_FALSE(guards.at(2).first.has_value());
  // A refused push is no push: mended, it counts under the same sequence.
  ASSERT_TRUE(Push({1, 1, 0, 1}, {7, 8}, std::vector<float>(8, 1)).Get().ok());
  Commit(0, 1);
  ASSERT_TRUE(Commit(1, 1).Get().ok());
  EXPECT_EQ(Hash().num_rows, 2u);
}

// An f32 sum in another order has other bits: 1e8 + 1 is 1e8.
TEST_P(TableHostTest, GradientsOfOneSliceAddUpInTheOrderOfTrainersThenSequencesWhicheverCameFirst) {
  Create(3);
  struct Part {
    uint32_t trainer;
    uint64_t sequence;
    float gradient;
  };
  std::vector<Part> parts = {{0, 9, 1e8f}, {1, 5, 1}, {1, 6, 3}, {2, 2, -1e8f}, {2, 4, 7}};
  float expected = 0;
  for (const Part& part : parts) expected += part.gradient;
  ASSERT_NE(expected, 11.0f);
  uint64_t id = 100, step = 0;
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.sequence < b.sequence; });
  do {
    ++id;
    ++step;
    const float before = Rows({id})[0];
    // Sequences are new in every step, in the same order.
    for (const Part& part : parts) {
      const float g = part.gradient;
      ASSERT_TRUE(
          Push({part.trainer, step, 0, 10 * step + part.sequence}, {id}, {g, g, g, g}).Get().ok());
    }
    Commit(0, step);
    Commit(1, step);
    ASSERT_TRUE(Commit(2, step).Get().ok());
    ASSERT_EQ(Rows({id})[0], before - expected) << "arrival " << step;
  } while (std::next_permutation(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return a.sequence < b.sequence;
  }));
  EXPECT_EQ(step, 120u);
}

// A push that is not part of this job's open step changes neither the count nor the first offender.
TEST_P(TableHostTest, RejectedValuesCountOnlyInPushesThatWouldHaveBeenTaken) {
  Create(2);
  const std::vector<float> broken = {1, std::nanf(""), 1, 1};
  for (const PushPlace& place : {PushPlace{5, 1, 0, 1}, PushPlace{0, 9, 0, 1},
                                 PushPlace{0, 0, 0, 1}, PushPlace{0, 1, 0, 0}}) {
    EXPECT_TRUE(absl::IsOutOfRange(Push(place, {3}, broken).Get()));
  }
  const auto gradients = std::make_shared<std::vector<float>>(broken);
  const uint64_t id = 3, padding = 0;
  Status ragged;
  host_.Accumulate({0, 1, 0, 1},
                   {{1, 1, &id, gradients->data()}, {2, 1, &padding, gradients->data()}}, gradients,
                   ragged.Callback());
  EXPECT_NE(ragged.Get().message().find("padding"), absl::string_view::npos) << ragged.Get();
  EXPECT_EQ(ValueGuards().at(1).rejected, 0u);
  EXPECT_FALSE(ValueGuards().at(1).first.has_value());
  EXPECT_TRUE(absl::IsOutOfRange(Push({1, 1, 0, 1, 3}, {4}, broken).Get()));
  EXPECT_EQ(ValueGuards().at(1).rejected, 1u);
  EXPECT_EQ(ValueGuards().at(1).first->id, 4u);
  ASSERT_TRUE(Push({1, 1, 0, 1, 2}, {4}, {1, 1, 1, 1}).Get().ok())
      << "the refused push's incarnation is not remembered";
}

TEST_P(TableHostTest, DenseEquivalentTablesWantStepsThatAreOneUpdate) {
  TableSpec spec = MakeTableSpec(1, 4, SPARSE_ADAM);
  spec.set_mode(TableSpec::DENSE_EQUIVALENT);
  ConsistencySpec consistency;
  consistency.set_mode(ConsistencySpec::ASP);
  Status refused, created;
  host_.CreateTables({spec}, 1, refused.Callback(), consistency);
  EXPECT_EQ(
      refused.Get().message(),
      "table table1: mode is DENSE_EQUIVALENT, must be LAZY or CATCH_UP with consistency ASP");
  spec.set_mode(TableSpec::CATCH_UP);
  host_.CreateTables({spec}, 1, created.Callback(), consistency);
  EXPECT_TRUE(created.Get().ok()) << created.Get();
}

// A push whose rows are dropped still counts.
TEST_P(TableHostTest, SkippedValuesAreCountedOnceHoweverOftenTheirPushComes) {
  TableSpec spec = MakeTableSpec(1, 4);
  spec.set_non_finite(TableSpec::SKIP);
  Status created;
  host_.CreateTables({spec}, 1, created.Callback());
  ASSERT_TRUE(created.Get().ok());
  const auto before = Rows({7, 8});
  for (int time = 0; time < 3; ++time) {
    ASSERT_TRUE(Push({0, 1, 0, 1}, {7, 8}, {1, 1, 1, 1, 1, std::nanf(""), 1, 1}).Get().ok());
  }
  Status committed;
  host_.Commit({0}, {1, {{1, 1}}, 1, false}, committed.Callback());
  ASSERT_TRUE(committed.Get().ok());
  ASSERT_TRUE(Push({0, 1, 0, 1}, {7, 8}, {1, 1, 1, 1, 1, std::nanf(""), 1, 1}).Get().ok())
      << "repeated after its step";
  const auto after = Rows({7, 8});
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(after[i], before[i] - (i < 4 ? 1 : 0)) << i;
  const auto guards = ValueGuards();
  EXPECT_EQ(guards.at(1).skipped, 1u);
  EXPECT_EQ(guards.at(1).rejected, 0u);
  ASSERT_TRUE(guards.at(1).first.has_value());
  EXPECT_EQ(guards.at(1).first->id, 8u);
  EXPECT_EQ(guards.at(1).first->step, 1u);
}

TEST_P(TableHostTest, CreateTablesIsRepeatableAndRefusesADifference) {
  Create(2);
  Create(2);
  Status trainers, spec, invalid, twice, renumbered;
  host_.CreateTables({}, 3, trainers.Callback());
  EXPECT_TRUE(absl::IsFailedPrecondition(trainers.Get())) << trainers.Get();
  host_.CreateTables({MakeTableSpec(1, 5)}, 2, spec.Callback());
  EXPECT_TRUE(absl::IsFailedPrecondition(spec.Get())) << spec.Get();
  host_.CreateTables({MakeTableSpec(3, 4), MakeTableSpec(4, 0)}, 2, invalid.Callback());
  EXPECT_TRUE(absl::IsInvalidArgument(invalid.Get())) << invalid.Get();
  EXPECT_FALSE(host_.Dim(3).ok()) << "a refused request creates none of its tables";
  host_.CreateTables({MakeTableSpec(3, 4), MakeTableSpec(3, 4)}, 2, twice.Callback());
  EXPECT_TRUE(absl::IsInvalidArgument(twice.Get())) << twice.Get();
  TableSpec other_number = MakeTableSpec(3, 4);
  other_number.set_name("table1");
  host_.CreateTables({other_number}, 2, renumbered.Callback());
  EXPECT_TRUE(absl::IsFailedPrecondition(renumbered.Get())) << renumbered.Get();
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
class BusyTableHostTest : public TableHostTest {
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

// Makes calls of `num_ids` ids one at a time: a pull, a push and a commit per step. Returns, for
// each call, true if the calling thread answered it.
std::vector<bool> AnsweredHere(size_t num_ids, int num_steps) {
  TableHost host(1);
  Answer<absl::Status> created;
  host.CreateTables({MakeTableSpec(1, 4)}, 1, created.Callback());
  EXPECT_TRUE(created.Get().ok());
  std::vector<uint64_t> ids(num_ids);
  std::iota(ids.begin(), ids.end(), 1);
  std::vector<float> rows(num_ids * 4);
  std::vector<bool> here;
  for (int i = 1; i <= num_steps; ++i) {
    const auto step = static_cast<uint64_t>(i);
    const auto wait = [&](const std::function<void(TableHost::Done)>& start) {
      Status answer;
      const auto answered_by = std::make_shared<std::thread::id>();
      start([answered_by, callback = answer.Callback()](absl::Status status) {
        *answered_by = std::this_thread::get_id();
        callback(std::move(status));
      });
      EXPECT_TRUE(answer.Get().ok()) << answer.Get();
      here.push_back(*answered_by == std::this_thread::get_id());
      if (!here.back())
        absl::SleepFor(
            absl::Milliseconds(10));  // the worker's thread ends what it has answered, and is idle
    };
    const std::vector<PushPart> parts{{1, ids.size(), ids.data(), rows.data()}};
    wait([&](auto done) {
      host.Pull(Caller{}, step, true, {{1, ids.size(), ids.data(), rows.data()}}, std::move(done));
    });
    wait([&](auto done) { host.Accumulate({0, step, 0, step}, parts, nullptr, std::move(done)); });
    wait([&](auto done) { host.Commit({}, {step, {{1, 1.0}}, 1, false}, std::move(done)); });
  }
  return here;
}

TEST(TableHostShortCallTest, AnIdleHostAnswersShortCallsBeforeTheyReturn) {
  const std::vector<bool> here = AnsweredHere(100, 50);
  const auto first = std::find(here.begin(), here.end(), true);
  EXPECT_LT(first, here.end());
  EXPECT_EQ(std::find(first, here.end(), false), here.end());
}

TEST(TableHostShortCallTest, LongCallsAreTheWorkers) {
  const size_t just_long = TableHost::kShortCallBytes / CallBytes(1, 4) + 1;
  EXPECT_EQ(AnsweredHere(just_long, 3), std::vector<bool>(9, false));
}

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
