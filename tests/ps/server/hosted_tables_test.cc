// Tables as a whole: who may create, load and save them, and what is counted.
#include "ps/server/hosted_tables.h"

#include <algorithm>

#include "tests/ps/server/host_calls.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

using HostedTablesTest = HostCallsTest;

TEST_P(HostedTablesTest, RefusesIdsAndShardsOfAnotherServer) {
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

TEST_P(HostedTablesTest, TheConsistencyOfAJobIsOne) {
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

TEST_P(HostedTablesTest, RowsAreSavedWhenEveryTrainerHasCommittedTheStep) {
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

TEST_P(HostedTablesTest, StatisticsCountWhatCameAndHowOldItWas) {
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

TEST_P(HostedTablesTest, DenseEquivalentTablesWantStepsThatAreOneUpdate) {
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

TEST_P(HostedTablesTest, CreateTablesIsRepeatableAndRefusesADifference) {
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

INSTANTIATE_TEST_SUITE_P(Workers, HostedTablesTest, testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace tandem::ps
