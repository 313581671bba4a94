// Local steps and deltas: which deltas reach the servers, and when. No trainer's updates are lost.
#include "ps/caching/geo_client.h"

#include <cmath>

#include "gtest/gtest.h"
#include "ps/local/local_client.h"
#include "tests/ps/client/slow_answers.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr size_t kIds = 40, kDim = 4, kValues = kIds * kDim;

absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

ConsistencySpec Asp() {
  ConsistencySpec spec;
  spec.set_mode(ConsistencySpec::ASP);
  return spec;
}

// A trainer's steps, one call after the other.
class Trainer {
 public:
  Trainer(ClientStack client, const TableSpec& spec) : client_(std::move(client)) {
    EXPECT_TRUE(client_.tables->CreateTables({spec}, absl::Seconds(30)).ok());
  }

  const Clients& client() { return client_; }
  uint64_t step() const { return step_; }  // the next one
  std::vector<float> Pull(const std::vector<uint64_t>& ids) {
    std::vector<float> rows(ids.size() * kDim);
    const auto pulled = client_.rows->Pull(step_, true, {{1, ids, rows.data()}}).Wait(Deadline());
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    return rows;
  }
  void Push(const std::vector<uint64_t>& ids, const std::vector<float>& gradients) {
    const auto pushed = client_.rows->Push(step_, 0, {{1, ids, gradients.data()}}).Wait(Deadline());
    EXPECT_TRUE(pushed.ok()) << pushed.status();
  }
  rpc::Future<rpc::Done> StartCommit(float rate, float scale = 1, bool skip = false,
                                     bool flush = false) {
    return client_.rows->Commit({step_++, {{1, rate}}, scale, skip, flush});
  }
  void Commit(float rate, float scale = 1, bool skip = false, bool flush = false) {
    const auto committed = StartCommit(rate, scale, skip, flush).Wait(Deadline());
    EXPECT_TRUE(committed.ok()) << committed.status();
  }
  std::vector<float> OnServers(const std::vector<uint64_t>& ids) {
    std::vector<float> rows(ids.size() * kDim);
    EXPECT_TRUE(client_.rows->Pull(0, false, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
    return rows;
  }

 private:
  ClientStack client_;
  uint64_t step_ = 1;
};

ClientStack GeoOver(ClientStack client, const GeoClientOptions& options) {
  client.Wrap<GeoClient>(options);
  return client;
}

// Trainers on two servers, or on one local host.
class GeoClientTest : public testing::TestWithParam<bool> {
 protected:
  ClientStack Plain(uint32_t trainer, uint32_t num_trainers, const ConsistencySpec& consistency) {
    if (!GetParam())
      return std::make_unique<LocalClient>(host_, trainer, num_trainers, consistency);
    RemoteClientOptions options{.timeout = absl::Seconds(30), .message_bytes = 256};
    options.consistency = consistency;
    return cluster_.MakeClient(trainer, num_trainers, options);
  }
  Trainer Geo(uint32_t trainer, uint32_t num_trainers, uint64_t geo_steps, const TableSpec& spec,
              const ConsistencySpec& consistency = Asp()) {
    return Trainer(
        GeoOver(Plain(trainer, num_trainers, consistency), {num_trainers, geo_steps, trainer}),
        spec);
  }

  void ExpectFailed(Trainer& trainer, const absl::Status& failure) {
    std::vector<float> rows(kValues);
    EXPECT_EQ(trainer.client()
                  .rows->Pull(trainer.step(), true, {{1, ids_, rows.data()}})
                  .Wait(Deadline())
                  .status(),
              failure);
    EXPECT_EQ(trainer.StartCommit(1).Wait(Deadline()).status(), failure);
  }

  PsCluster cluster_{2, 1};
  TableHost host_{2};
  const std::vector<uint64_t> ids_ = MakeIds(1, kIds);
  const std::vector<float> ones_ = std::vector<float>(kValues, 1);
};

TEST_P(GeoClientTest, ServersHearOfStepsWhenTheWindowEndsAndTheTrainerSeesThemAtOnce) {
  Trainer trainer = Geo(0, 1, 3, MakeTableSpec(1, kDim));
  const std::vector<float> first = trainer.Pull(ids_);
  EXPECT_EQ(first, trainer.OnServers(ids_));
  for (int step = 1; step <= 6; ++step) {
    trainer.Pull(ids_);
    trainer.Push(ids_, ones_);
    trainer.Commit(0.5f);
    const std::vector<float> mine = trainer.Pull(ids_), servers = trainer.OnServers(ids_);
    for (size_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(mine[i], first[i] - 0.5f * static_cast<float>(step), 1e-5) << "step " << step;
      ASSERT_NEAR(servers[i], first[i] - 0.5f * static_cast<float>(step / 3 * 3), 1e-5)
          << "step " << step;
    }
  }
}

// A copy that is written back whole overwrites another trainer's updates (TFRA's bp; its bp_v2
// sends deltas).
TEST_P(GeoClientTest, DeltasOfConcurrentTrainersAddUpAndNoneOverwritesAnother) {
  std::vector<Trainer> trainers;
  for (uint32_t t = 0; t < 3; ++t) trainers.push_back(Geo(t, 3, 2, MakeTableSpec(1, kDim)));
  std::vector<float> first;
  for (Trainer& trainer : trainers) first = trainer.Pull(ids_);
  // All trainers have copies of the same rows now. The copies move by 2, 4 and 6 in two steps each,
  // in turns.
  for (int step = 1; step <= 2; ++step) {
    for (size_t t = 0; t < trainers.size(); ++t) {
      trainers[t].Pull(ids_);
      // The share of a mean over three trainers is a third of the own mean.
      trainers[t].Push(ids_, std::vector<float>(kValues, static_cast<float>(t + 1)));
      trainers[t].Commit(1, 1.0f / 3);
    }
  }
  for (Trainer& trainer : trainers) {
    const std::vector<float> rows = trainer.Pull(ids_);
    for (size_t i = 0; i < kValues; ++i) EXPECT_NEAR(rows[i], first[i] - (2 + 4 + 6) / 3.0f, 1e-5);
  }
}

TEST_P(GeoClientTest, WindowsOfOneStepOfSgdAreBspToRounding) {
  TableHost host(1);
  std::vector<Trainer> geo, bsp;
  for (uint32_t t = 0; t < 2; ++t) {
    geo.push_back(Geo(t, 2, 1, MakeTableSpec(1, kDim), ConsistencySpec()));
    bsp.emplace_back(std::make_unique<LocalClient>(host, t, 2), MakeTableSpec(1, kDim));
  }
  for (uint64_t step = 1; step <= 20; ++step) {
    std::vector<rpc::Future<rpc::Done>> commits;
    for (uint32_t t = 0; t < 2; ++t) {
      const auto ids = MakeIds(step * 2 + t, kIds);
      const std::vector<float> rows = geo[t].Pull(ids), expected = bsp[t].Pull(ids);
      for (size_t i = 0; i < kValues; ++i)
        ASSERT_NEAR(rows[i], expected[i], 1e-5) << "step " << step;
      for (Trainer* trainer : {&geo[t], &bsp[t]}) {
        trainer->Push(ids, MakeValues(step * 2 + t, kValues));
        commits.push_back(trainer->StartCommit(0.1f, 0.25f, /*skip=*/step == 7));
      }
    }
    for (const auto& commit : commits) ASSERT_TRUE(commit.Wait(Deadline()).ok());
  }
}

TEST_P(GeoClientTest, OneTrainersCopiesFollowTheJobsOptimizerAndServersKeepNoStateOfIt) {
  TableHost host(1);
  const TableSpec adam = MakeTableSpec(1, kDim, SPARSE_ADAM);
  Trainer geo = Geo(0, 1, 4, adam), plain(std::make_unique<LocalClient>(host, 0, 1), adam);
  for (uint64_t step = 1; step <= 20; ++step) {
    const auto ids = MakeIds(step, kIds);
    const std::vector<float> rows = geo.Pull(ids), expected = plain.Pull(ids);
    for (size_t i = 0; i < kValues; ++i) ASSERT_NEAR(rows[i], expected[i], 1e-5) << "step " << step;
    for (Trainer* trainer : {&geo, &plain}) {
      trainer->Push(ids, MakeValues(step, kValues));
      trainer->Commit(0.01f);
    }
  }
  EXPECT_EQ(geo.client().tables->StoredSpec(adam).optimizer(), SPARSE_SGD);
}

TEST_P(GeoClientTest, RowIsPulledOnceInAWindowAndBeginsTheNextOneAsServersHaveIt) {
  Trainer mine = Geo(0, 2, 2, MakeTableSpec(1, kDim)), other = Geo(1, 2, 1, MakeTableSpec(1, kDim));
  const std::vector<float> first = mine.Pull(ids_);
  other.Pull(ids_);
  other.Push(ids_, ones_);
  other.Commit(1, 0.5f);
  EXPECT_EQ(mine.Pull(ids_), first) << "within the window";
  mine.Commit(1);
  EXPECT_EQ(mine.Pull(ids_), first) << "within the window";
  mine.Commit(1);
  const std::vector<float> rows = mine.Pull(ids_);
  for (size_t i = 0; i < kValues; ++i) EXPECT_NEAR(rows[i], first[i] - 0.5f, 1e-6);
}

TEST_P(GeoClientTest, FlushEndsTheWindowAndWithoutItNothingIsSavedOrHashed) {
  Trainer trainer = Geo(0, 1, 1000, MakeTableSpec(1, kDim));
  const std::vector<float> first = trainer.Pull(ids_);
  trainer.Push(ids_, ones_);
  trainer.Commit(1);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(trainer.client().tables->Hash().Wait(Deadline()).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      trainer.client().tables->Save(1, "/tmp", Deadline()).Wait(Deadline()).status()));
  trainer.Commit(1, 1, false, /*flush=*/true);
  const auto hash = trainer.client().tables->Hash().Wait(Deadline());
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(hash->num_rows, kIds);
  const std::vector<float> servers = trainer.OnServers(ids_);
  for (size_t i = 0; i < kValues; ++i) EXPECT_NEAR(servers[i], first[i] - 1, 1e-6);
}

TEST_P(GeoClientTest, RowsThatWereOnlyReadAreNotPushed) {
  Trainer trainer = Geo(0, 1, 1, MakeTableSpec(1, kDim));
  trainer.Pull(ids_);
  trainer.Push({ids_[0]}, std::vector<float>(kDim, 1));
  trainer.Commit(1);
  const auto hash = trainer.client().tables->Hash().Wait(Deadline());
  ASSERT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(hash->num_rows, 1u);
}

TEST_P(GeoClientTest, RefusedPushFailsItsCommitAndChangesNothing) {
  Trainer trainer = Geo(0, 1, 2, MakeTableSpec(1, kDim));
  const std::vector<float> first = trainer.Pull(ids_);
  std::vector<float> broken = ones_;
  broken[17] = std::nanf("");
  const std::vector<uint64_t> unknown = {ids_[0], 987654321}, twice = {ids_[0], ids_[0]},
                              zero = {0};
  const auto push = [&](const std::vector<uint64_t>& ids, const std::vector<float>& gradients) {
    return trainer.client()
        .rows->Push(1, 0, {{1, ids, gradients.data()}})
        .Wait(Deadline())
        .status();
  };
  EXPECT_TRUE(push(ids_, ones_).ok());
  const absl::Status rejected = push(ids_, broken);
  EXPECT_TRUE(absl::IsOutOfRange(rejected)) << rejected;
  for (const absl::Status& refused :
       {push(unknown, ones_), push(twice, ones_), push(zero, ones_),
        trainer.client().rows->Push(1, 0, {{2, ids_, ones_.data()}}).Wait(Deadline()).status()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  }
  const absl::Status committed =
      trainer.client().rows->Commit({1, {{1, 1.0f}}, 1, false}).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsOutOfRange(committed)) << "the first refusal: " << committed;
  EXPECT_EQ(trainer.Pull(ids_), first);
  trainer.Push(ids_, ones_);
  trainer.Commit(1);
  EXPECT_NEAR(trainer.Pull(ids_)[0], first[0] - 1, 1e-6);
}

// A pull waits at the servers for the commit before it. A refused commit would keep the trainer
// waiting.
TEST_P(GeoClientTest, CopyThatOverflowsFailsItsCommitAndEveryCallBehindIt) {
  Trainer trainer = Geo(0, 1, 1, MakeTableSpec(1, kDim));
  trainer.Pull(ids_);
  trainer.Push(ids_, std::vector<float>(kValues, 2e38f));
  const absl::Status committed = trainer.StartCommit(1e20f).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsOutOfRange(committed)) << committed;
  EXPECT_NE(committed.message().find("of trainer 0 up to step 1 is not finite"),
            absl::string_view::npos)
      << committed;
  ExpectFailed(trainer, committed);
}

TEST_P(GeoClientTest, SumThatOverflowsFailsItsCommitAndEveryCallBehindIt) {
  Trainer trainer = Geo(0, 1, 9, MakeTableSpec(1, kDim));
  trainer.Pull(ids_);
  trainer.Commit(1);
  trainer.Pull(ids_);
  for (int part = 0; part < 2; ++part) trainer.Push(ids_, std::vector<float>(kValues, 2e38f));
  const absl::Status committed = trainer.StartCommit(1).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsOutOfRange(committed)) << committed;
  EXPECT_NE(committed.message().find("their sum is not"), absl::string_view::npos) << committed;
  ExpectFailed(trainer, committed);
}

TEST_P(GeoClientTest, GuardedGradientsAreInTheStatisticsOfTheTrainerThatHadThem) {
  for (const auto policy : {TableSpec::REJECT, TableSpec::SKIP, TableSpec::CLIP}) {
    SCOPED_TRACE(TableSpec::NonFinite_Name(policy));
    TableHost host(1);
    TableSpec spec = MakeTableSpec(1, kDim);
    spec.set_non_finite(policy);
    spec.set_max_row_norm(1.5f);
    Trainer other(GeoOver(std::make_unique<LocalClient>(host, 0, 2, Asp()), {2, 2, 0}), spec);
    Trainer trainer(GeoOver(std::make_unique<LocalClient>(host, 1, 2, Asp()), {2, 2, 1}), spec);
    std::vector<float> broken(kValues, 0.25f);
    broken[5 * kDim] = INFINITY;
    broken[7 * kDim] = 2;  // times 2 trainers: longer than max_row_norm
    trainer.Pull(ids_);
    const absl::Status pushed =
        trainer.client().rows->Push(1, 0, {{1, ids_, broken.data()}}).Wait(Deadline()).status();
    EXPECT_EQ(pushed.ok(), policy != TableSpec::REJECT) << pushed;
    trainer.StartCommit(1).Wait(Deadline()).IgnoreError();
    const auto statistics = trainer.client().tables->Statistics().Wait(Deadline());
    ASSERT_TRUE(statistics.ok()) << statistics.status();
    ASSERT_EQ(statistics->tables_size(), 1);
    const TableStatistics& table = statistics->tables(0);
    EXPECT_EQ(table.rejected(), policy == TableSpec::REJECT ? 1u : 0u);
    EXPECT_EQ(table.skipped(), policy == TableSpec::SKIP ? 1u : 0u);
    EXPECT_EQ(table.mended(), policy == TableSpec::CLIP ? 1u : 0u);
    EXPECT_EQ(table.clipped(), policy == TableSpec::REJECT ? 0u : 1u);
    EXPECT_EQ(table.rows(), kIds) << "the servers'";
    EXPECT_EQ(table.first_offender().id(), ids_[5]);
    EXPECT_EQ(table.first_offender().trainer(), 1u);
    EXPECT_EQ(table.first_offender().step(), 1u);
    EXPECT_FALSE(
        other.client().tables->Statistics().Wait(Deadline())->tables(0).has_first_offender());
  }
}

TEST_P(GeoClientTest, NormIsOfThisTrainersGradients) {
  Trainer trainer = Geo(0, 2, 2, MakeTableSpec(1, kDim));
  trainer.Pull(ids_);
  trainer.Push(ids_, ones_);
  const auto norm = trainer.client().rows->GradientNorm(1).Wait(Deadline());
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_EQ(*norm, absl::uint128(kValues) << 64);
}

TEST_P(GeoClientTest, AbortFailsWhatNeedsServers) {
  Trainer trainer = Geo(0, 1, 1, MakeTableSpec(1, kDim));
  trainer.client().rows->Abort(absl::AbortedError("a peer is gone"));
  std::vector<float> rows(kValues);
  EXPECT_TRUE(absl::IsAborted(
      trainer.client().rows->Pull(1, true, {{1, ids_, rows.data()}}).Wait(Deadline()).status()));
  EXPECT_TRUE(absl::IsAborted(
      trainer.client().rows->Commit({1, {{1, 1.0f}}, 1, false}).Wait(Deadline()).status()));
}

TEST_P(GeoClientTest, PullAheadOfTheOwnCommitIsRefused) {
  Trainer trainer = Geo(0, 1, 2, MakeTableSpec(1, kDim));
  trainer.Commit(1);
  std::vector<float> rows(kValues);
  for (const uint64_t step : {1, 3}) {
    const absl::Status status =
        trainer.client().rows->Pull(step, true, {{1, ids_, rows.data()}}).Wait(Deadline()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  }
}

TEST_P(GeoClientTest, RowsThatArriveWhenTheirWindowHasEndedAreNotTheNextOnes) {
  ClientStack client = Plain(0, 2, Asp());
  SlowAnswers& answers = client.Wrap<SlowAnswers>();
  Trainer trainer(GeoOver(std::move(client), {2, 2}), MakeTableSpec(1, kDim));
  Trainer other(Plain(1, 2, Asp()), trainer.client().tables->StoredSpec(MakeTableSpec(1, kDim)));
  std::vector<float> rows(kValues);
  answers.Hold();
  const auto pulled = trainer.client().rows->Pull(1, true, {{1, ids_, rows.data()}});
  trainer.Commit(1, 1, false, /*flush=*/true);
  other.Push(ids_, ones_);
  other.Commit(1);
  answers.Release();
  ASSERT_TRUE(pulled.Wait(Deadline()).ok());
  const std::vector<float> next = trainer.Pull(ids_);
  for (size_t i = 0; i < kValues; ++i) EXPECT_EQ(next[i], rows[i] - 1) << "as servers have it";
}

INSTANTIATE_TEST_SUITE_P(Both, GeoClientTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Remote" : "Local"; });

}  // namespace
}  // namespace tandem::ps
