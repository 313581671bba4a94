// Pulls of a caller that has rows: only changed rows come, with both clients.
#include "gtest/gtest.h"
#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr size_t kIds = 30, kDim = 4;
constexpr float kUntouched = -77;

absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

// One trainer on two servers with small messages, or on a local host of two workers.
class PullChangedTest : public testing::TestWithParam<bool> {
 protected:
  PullChangedTest() {
    if (GetParam())
      client_ = cluster_.MakeClient(0, 1, {absl::Seconds(30), 64});
    else
      client_ = std::make_unique<LocalClient>(host_, 0, 1);
    EXPECT_TRUE(client_.tables
                    ->CreateTables({MakeTableSpec(1, kDim), MakeTableSpec(2, 3)}, absl::Seconds(30))
                    .ok());
  }
  // Pulls into rows_, which first hold kUntouched everywhere. Reads and updates versions_.
  void Pull(uint32_t read_bound = 0) {
    rows_.assign(kIds * kDim, kUntouched);
    const auto pulled =
        client_.rows->Pull(step_, true, {{1, ids_, rows_.data(), versions_.data(), read_bound}})
            .Wait(Deadline());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
  }
  // Lowers every row of `ids` by one.
  void Update(absl::Span<const uint64_t> ids) {
    const std::vector<float> gradients(ids.size() * kDim, 1);
    client_.rows->Push(step_, 0, {{1, ids, gradients.data()}});
    const auto committed =
        client_.rows->Commit({step_, {{1, 1.0f}, {2, 1.0f}}, 1, false}).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
    ++step_;
  }

  PsCluster cluster_{2, 1};
  TableHost host_{2};
  ClientStack client_;
  const std::vector<uint64_t> ids_ = MakeIds(1, kIds);
  std::vector<uint32_t> versions_ = std::vector<uint32_t>(kIds, 0);
  std::vector<float> rows_;
  uint64_t step_ = 1;
};

TEST_P(PullChangedTest, RowsThatTheCallerHasAreWrittenOnlyAfterACommitChangedThem) {
  Pull();
  EXPECT_EQ(versions_, std::vector<uint32_t>(kIds, 1));
  const std::vector<float> first = rows_;
  EXPECT_EQ(std::count(first.begin(), first.end(), kUntouched), 0);

  Pull();
  EXPECT_EQ(versions_, std::vector<uint32_t>(kIds, 0));
  EXPECT_EQ(rows_, std::vector<float>(kIds * kDim, kUntouched));

  Update(absl::MakeConstSpan(ids_).subspan(0, kIds / 2));
  versions_.assign(kIds, 1);
  Pull();
  for (size_t i = 0; i < kIds; ++i) {
    const bool changed = i < kIds / 2;
    EXPECT_EQ(versions_[i], changed ? 2u : 0u);
    EXPECT_EQ(rows_[i * kDim], changed ? first[i * kDim] - 1 : kUntouched);
  }
}

TEST_P(PullChangedTest, RowIsWrittenWhenItLacksMoreCommitsThanTheBound) {
  Pull();
  for (int commits = 1; commits <= 3; ++commits) {
    Update(ids_);
    versions_.assign(kIds, 1);
    Pull(/*read_bound=*/2);
    EXPECT_EQ(versions_, std::vector<uint32_t>(kIds, commits <= 2 ? 0 : 4))
        << commits << " commits";
  }
}

TEST_P(PullChangedTest, VersionThatTheServerNeverHadIsOfAnotherRow) {
  versions_.assign(kIds, 100);
  Pull(/*read_bound=*/1000);
  EXPECT_EQ(versions_, std::vector<uint32_t>(kIds, 1));
  EXPECT_EQ(std::count(rows_.begin(), rows_.end(), kUntouched), 0);
}

TEST_P(PullChangedTest, SegmentWithoutVersionsIsWrittenWhole) {
  Pull();
  const std::vector<float> first = rows_;
  std::vector<float> others(kIds * 3, kUntouched), again(kIds * kDim, kUntouched);
  std::vector<uint32_t> versions(kIds, 1);
  const std::vector<PullSegment> segments = {{2, ids_, others.data()},
                                             {1, ids_, again.data(), versions.data(), 0},
                                             {1, ids_, rows_.data()}};
  const auto pulled = client_.rows->Pull(1, true, segments).Wait(Deadline());
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(std::count(others.begin(), others.end(), kUntouched), 0);
  EXPECT_EQ(again, std::vector<float>(kIds * kDim, kUntouched));
  EXPECT_EQ(rows_, first);
}

TEST_P(PullChangedTest, EvaluationInsertsNothingAndSaysThatAbsentRowsAreNew) {
  rows_.assign(kIds * kDim, kUntouched);
  const std::vector<PullSegment> segments = {{1, ids_, rows_.data(), versions_.data(), 0}};
  ASSERT_TRUE(client_.rows->Pull(0, false, segments).Wait(Deadline()).ok());
  EXPECT_EQ(versions_, std::vector<uint32_t>(kIds, 1));
  const std::vector<float> shown = rows_;
  versions_.assign(kIds, 0);
  Pull();
  EXPECT_EQ(rows_, shown);
}

// Adam moves a row in steps without a gradient for it (apache/mxnet#17728). The row's version does
// not show that.
TEST_P(PullChangedTest, RowsThatMoveWithoutACommitComeEveryTime) {
  TableSpec dense = MakeTableSpec(3, kDim, SPARSE_ADAM);
  dense.set_mode(TableSpec::DENSE_EQUIVALENT);
  ASSERT_TRUE(client_.tables->CreateTables({dense}, absl::Seconds(30)).ok());
  const std::vector<uint64_t> ids = {7, 8};
  const std::vector<float> gradient(kDim, 1);
  std::vector<float> rows(2 * kDim), again(2 * kDim, kUntouched);
  for (const uint64_t pushed : ids) {
    client_.rows->Push(step_, 0, {{3, absl::MakeConstSpan(&pushed, 1), gradient.data()}});
    const auto committed =
        client_.rows->Commit({step_++, {{1, 1.0f}, {2, 1.0f}, {3, 0.5f}}, 1, false})
            .Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
    if (pushed != 7) continue;
    ASSERT_TRUE(client_.rows->Pull(step_, true, {{3, ids, rows.data()}}).Wait(Deadline()).ok());
  }
  uint32_t versions[2] = {2, 1};  // the versions at the first step
  ASSERT_TRUE(
      client_.rows->Pull(step_, true, {{3, ids, again.data(), versions, 0}}).Wait(Deadline()).ok());
  EXPECT_EQ(versions[0], 2u);
  EXPECT_NE(again[0], rows[0]);
  EXPECT_EQ(versions[1], 2u);
}

INSTANTIATE_TEST_SUITE_P(Both, PullChangedTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Remote" : "Local"; });

}  // namespace
}  // namespace tandem::ps
