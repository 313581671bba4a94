// Pushes of a host that come again, late, or with values that nobody wants, and the order in which
// gradients add up.
#include <algorithm>
#include <cmath>

#include "tests/ps/server/host_calls.h"

namespace tandem::ps {
namespace {

using HostPushTest = HostCallsTest;

TEST_P(HostPushTest, FiniteGradientsWhoseSumOverflowsEndTheRunOfAll) {
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

TEST_P(HostPushTest, RepeatedPushCountsOnce) {
  Create(1);
  const auto before = Rows({7});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push({0, 1, 0, 5}, {7}, {1, 1, 1, 1}).Get().ok());
  ASSERT_TRUE(Commit(0, 1).Get().ok());
  ASSERT_TRUE(Push({0, 1, 0, 5}, {7}, {1, 1, 1, 1}).Get().ok()) << "known after its step too";
  ASSERT_TRUE(Commit(0, 2).Get().ok());
  EXPECT_EQ(Rows({7})[0], before[0] - 1);
}

TEST_P(HostPushTest, PushForAStepThatIsAppliedWithoutItIsRefusedNotLost) {
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

TEST_P(HostPushTest, RepeatedPushWithRowsOfMoreShardsAddsTheseOnly) {
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

TEST_P(HostPushTest, CallsOfAnOldIncarnationAreRefusedAndChangeNothing) {
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

TEST_P(HostPushTest, RefusedInputChangesNothing) {
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

TEST_P(HostPushTest, OneBadSegmentRefusesTheWholeMessage) {
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

TEST_P(HostPushTest, RejectedValuesAreCountedAndTheFirstIsNamed) {
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
TEST_P(HostPushTest, GradientsOfOneSliceAddUpInTheOrderOfTrainersThenSequencesWhicheverCameFirst) {
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
TEST_P(HostPushTest, RejectedValuesCountOnlyInPushesThatWouldHaveBeenTaken) {
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

// A push whose rows are dropped still counts.
TEST_P(HostPushTest, SkippedValuesAreCountedOnceHoweverOftenTheirPushComes) {
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

INSTANTIATE_TEST_SUITE_P(Workers, HostPushTest, testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace tandem::ps
