// A trainer's cache of rows. With bounds of 0 the cache changes nothing.
// No row is older than its bounds allow, however slow a trainer is. A trainer always sees its own
// updates.
#include "ps/caching/cached_client.h"

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "kernels/base/random.h"
#include "ps/local/local_client.h"
#include "tests/ps/client/slow_answers.h"
#include "tests/ps/cluster.h"
#include "tests/ps/training.h"

namespace tandem::ps {
namespace {

using Counts = CachedClient::Counts;

ConsistencySpec Asp() {
  ConsistencySpec spec;
  spec.set_mode(ConsistencySpec::ASP);
  return spec;
}

RemoteClientOptions RemoteOptions(const ConsistencySpec& consistency, size_t message_bytes = 300) {
  RemoteClientOptions options{.timeout = absl::Seconds(30), .message_bytes = message_bytes};
  options.consistency = consistency;
  return options;
}

Counts CountsOf(const Clients& client) {
  return dynamic_cast<const CachedClient&>(*client.rows).counts();
}

TEST(CachedClientTest, WithoutBoundsEveryBitIsThatOfNoCache) {
  TableHost plain_host(2);
  const auto reference = TrainAll(
      [&](uint32_t trainer) {
        return std::make_unique<LocalClient>(plain_host, trainer, kTrainers);
      },
      {1, 6});
  for (const size_t rows : {size_t{0}, size_t{25}, size_t{100000}}) {
    for (const bool remote : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << (remote ? "remote" : "local"));
      PsCluster cluster(2, 1);
      TableHost host(2);
      const TrainerClients clients = MakeClients([&](uint32_t trainer) {
        ClientStack client = std::make_unique<LocalClient>(host, trainer, kTrainers);
        if (remote) client = cluster.MakeClient(trainer, kTrainers, RemoteOptions({}));
        client.Wrap<CachedClient>(CacheOptions{.rows_per_table = rows});
        return client;
      });
      ExpectSame(TrainAll(clients, {1, 6}), reference);
      const Counts counts = CountsOf(clients[0]);
      EXPECT_EQ(counts.hits > 0, rows > 0) << "step 4 is skipped: its rows are good for step 5";
      EXPECT_EQ(counts.hits + counts.refreshes + counts.misses, 6u * (53 + 66 + 79));
    }
  }
}

// Column t of a row counts the gradients of trainer t in it: rows start at 0, the rate is 1 and
// every gradient is -1.
constexpr uint32_t kDim = 2;
constexpr size_t kRows = 12;

TableSpec CountingSpec() {
  TableSpec spec = MakeTableSpec(1, kDim, SPARSE_SGD);
  spec.set_init_stddev(0);
  return spec;
}

class CountingTrainer {
 public:
  CountingTrainer(ClientStack client, uint32_t trainer)
      : client_(std::move(client)), trainer_(trainer) {
    EXPECT_TRUE(client_.tables->CreateTables({CountingSpec()}, absl::Seconds(30)).ok());
  }
  const Clients& client() { return client_; }
  uint64_t clock() const { return clock_; }  // steps committed

  using Row = std::array<float, kDim>;
  std::vector<Row> Pull(const std::vector<uint64_t>& ids) {
    std::vector<Row> rows(ids.size());
    const auto pulled =
        client_.rows->Pull(clock_ + 1, true, {{1, ids, rows[0].data()}}).Wait(Deadline());
    EXPECT_TRUE(pulled.ok()) << pulled.status();
    return rows;
  }
  void PushAndCommit(const std::vector<uint64_t>& ids, bool flush = false) {
    std::vector<Row> gradients(ids.size(), Row{});
    for (Row& gradient : gradients) gradient[trainer_] = -1;
    client_.rows->Push(clock_ + 1, 0, {{1, ids, gradients[0].data()}});
    const auto committed =
        client_.rows->Commit({clock_ + 1, {{1, 1.0f}}, 1, false, flush}).Wait(Deadline());
    EXPECT_TRUE(committed.ok()) << committed.status();
    ++clock_;
  }

 private:
  const ClientStack client_;
  const uint32_t trainer_;
  uint64_t clock_ = 0;
};

struct Bounds {
  uint32_t read = 0, write = 0;
};

std::unique_ptr<CountingTrainer> MakeCountingTrainer(TableHost& host, uint32_t trainer,
                                                     const Bounds& bounds, size_t rows) {
  ClientStack client = std::make_unique<LocalClient>(host, trainer, 2, Asp());
  client.Wrap<CachedClient>(
      CacheOptions{.rows_per_table = rows, .read_bound = bounds.read, .write_bound = bounds.write});
  return std::make_unique<CountingTrainer>(std::move(client), trainer);
}

// The gradients of one row, with trainer and step, in the order of commits. Only the test keeps
// this record.
struct RowHistory {
  struct Gradient {
    uint32_t trainer;
    uint64_t step;
  };
  std::vector<Gradient> gradients;

  int CountOf(uint32_t trainer) const {
    return static_cast<int>(std::count_if(gradients.begin(), gradients.end(),
                                          [&](const Gradient& g) { return g.trainer == trainer; }));
  }
  // Gradients of `trainer` among the last `commits`, each of which has one gradient.
  int CountOfLast(uint32_t trainer, size_t commits) const {
    const size_t begin = gradients.size() - std::min(commits, gradients.size());
    return static_cast<int>(std::count_if(gradients.begin() + static_cast<std::ptrdiff_t>(begin),
                                          gradients.end(),
                                          [&](const Gradient& g) { return g.trainer == trainer; }));
  }
  // Gradients of `trainer` up to its step `step`.
  int CountUntil(uint32_t trainer, int64_t step) const {
    return static_cast<int>(
        std::count_if(gradients.begin(), gradients.end(), [&](const Gradient& g) {
          return g.trainer == trainer && static_cast<int64_t>(g.step) <= step;
        }));
  }
};

// Runs thousands of steps of two trainers in a random order; the second trainer is slow.
// Returns the most gradients of the other trainer that a pulled row lacked.
int OldestOf(const Bounds& bounds, size_t cache_rows, uint64_t seed, uint64_t* hits) {
  TableHost host(2);
  std::vector<std::unique_ptr<CountingTrainer>> trainers;
  for (uint32_t t = 0; t < 2; ++t)
    trainers.push_back(MakeCountingTrainer(host, t, bounds, cache_rows));
  std::map<uint64_t, RowHistory> histories;
  int oldest = 0;
  for (uint64_t turn = 0; turn < 1500; ++turn) {
    const uint64_t drawn = Fmix64(seed * 7919 + turn);
    const uint32_t t = drawn % 8 == 0 ? 1 : 0, other = 1 - t;
    CountingTrainer& trainer = *trainers[t];
    std::vector<uint64_t> ids, pushed;
    for (uint64_t id = 1; id <= kRows; ++id) {
      if ((drawn >> (3 + id)) % 3 != 0) ids.push_back(id);  // two in three
      if ((drawn >> (3 + id)) % 12 == 1) pushed.push_back(id);
    }
    if (pushed.empty()) continue;
    const auto rows = trainer.Pull(ids);
    for (size_t i = 0; i < ids.size(); ++i) {
      const RowHistory& history = histories[ids[i]];
      EXPECT_EQ(rows[i][t], history.CountOf(t)) << "own gradients, turn " << turn;
      const int has = static_cast<int>(rows[i][other]);
      // The gradients that the other trainer must have pushed by now, minus those that the bounds
      // allow to be missing.
      const int64_t pushed_until = static_cast<int64_t>(trainers[other]->clock()) - bounds.write;
      const int least = bounds.write == 0
                            ? history.CountOf(other) - history.CountOfLast(other, bounds.read)
                            : history.CountUntil(other, pushed_until) -
                                  static_cast<int>(bounds.read * (bounds.write + 1));
      EXPECT_GE(has, least) << "turn " << turn << ", row " << ids[i] << " of trainer " << t;
      EXPECT_LE(has, history.CountOf(other));
      oldest = std::max(oldest, history.CountOf(other) - has);
      if (testing::Test::HasFailure()) return oldest;
    }
    trainer.PushAndCommit(pushed);
    for (const uint64_t id : pushed) histories[id].gradients.push_back({t, trainer.clock()});
  }
  *hits = CountsOf(trainers[0]->client()).hits + CountsOf(trainers[1]->client()).hits;
  const auto statistics = trainers[0]->client().tables->Statistics().Wait(Deadline());
  EXPECT_TRUE(statistics.ok()) << statistics.status();
  const StepHistogram& left_out = statistics->tables(0).left_out();
  EXPECT_LE(left_out.max(), bounds.read);
  EXPECT_EQ(std::accumulate(left_out.counts().begin(), left_out.counts().end(), uint64_t{0}),
            *hits);
  return oldest;
}

TEST(CachedClientTest, NoRowLacksMoreCommitsThanTheReadBoundHoweverSlowTheTrainer) {
  for (const uint32_t read : {0, 1, 2, 5, 17}) {
    uint64_t hits = 0;
    SCOPED_TRACE(testing::Message() << "read bound " << read);
    const int oldest = OldestOf({read, 0}, 100, read, &hits);
    EXPECT_EQ(oldest, static_cast<int>(read)) << "a bound that is never reached is not tested";
    EXPECT_GT(hits, 0u);
  }
}

TEST(CachedClientTest, NoGradientIsKeptBackLongerThanTheWriteBoundHoweverSlowTheTrainer) {
  for (const uint32_t write : {1, 2, 5}) {
    uint64_t hits = 0;
    SCOPED_TRACE(testing::Message() << "write bound " << write);
    EXPECT_GE(OldestOf({0, write}, 100, write, &hits), 1);
    EXPECT_GT(hits, 0u);
  }
}

TEST(CachedClientTest, BothBoundsHoldTogetherAndInACacheThatIsTooSmall) {
  uint64_t hits = 0;
  EXPECT_GT(OldestOf({2, 2}, 100, 1, &hits), 0);
  EXPECT_GT(OldestOf({2, 2}, 5, 2, &hits), 0);
  EXPECT_GT(OldestOf({3, 0}, 5, 3, &hits), 0);
}

// Over the network and on threads: the slow trainer takes one step for every five of the fast
// trainer.
TEST(CachedClientTest, BoundHoldsForASlowTrainerBesideAFastOne) {
  constexpr uint32_t kReadBound = 3;
  constexpr uint64_t kSteps = 300;
  PsCluster cluster(2, 1);
  std::vector<std::unique_ptr<CountingTrainer>> trainers;
  for (uint32_t t = 0; t < 2; ++t) {
    ClientStack client = cluster.MakeClient(t, 2, RemoteOptions(Asp()));
    client.Wrap<CachedClient>(CacheOptions{.rows_per_table = 100, .read_bound = kReadBound});
    trainers.push_back(std::make_unique<CountingTrainer>(std::move(client), t));
  }
  std::vector<uint64_t> ids(kRows);
  for (size_t i = 0; i < kRows; ++i) ids[i] = i + 1;
  absl::Mutex mutex;
  uint64_t fast_clock = 0;
  std::thread fast([&] {
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const auto rows = trainers[0]->Pull(ids);
      for (const auto& row : rows) EXPECT_EQ(row[0], static_cast<float>(step - 1));
      trainers[0]->PushAndCommit(ids);
      absl::MutexLock lock(&mutex);
      fast_clock = step;
    }
  });
  float oldest = 0;
  for (uint64_t step = 1; step * 5 <= kSteps; ++step) {
    uint64_t before = 0;
    {
      absl::MutexLock lock(&mutex);
      auto ahead = [&] { return fast_clock >= step * 5; };
      mutex.AwaitWithDeadline(absl::Condition(&ahead), Deadline());
      before = fast_clock;
    }
    const auto rows = trainers[1]->Pull(ids);
    for (const auto& row : rows) {
      EXPECT_EQ(row[1], static_cast<float>(step - 1));
      EXPECT_GE(row[0] + kReadBound, static_cast<float>(before));
      oldest = std::max(oldest, static_cast<float>(before) - row[0]);
    }
    trainers[1]->PushAndCommit(ids);
  }
  fast.join();
  EXPECT_GT(CountsOf(trainers[0]->client()).hits, 0u);
}

TEST(CachedClientTest, RowsThatArriveAfterTheNextCommitAreNotKeptWithoutItsGradients) {
  TableHost host(1);
  ClientStack client = std::make_unique<LocalClient>(host, 0, 2, Asp());
  SlowAnswers& answers = client.Wrap<SlowAnswers>();
  client.Wrap<CachedClient>(CacheOptions{.rows_per_table = 9, .read_bound = 4});
  CountingTrainer trainer(std::move(client), 0);
  const uint64_t id = 7;
  float row[kDim];
  answers.Hold();
  const auto pulled = trainer.client().rows->Pull(1, true, {{1, absl::MakeConstSpan(&id, 1), row}});
  trainer.PushAndCommit({id});
  answers.Release();
  ASSERT_TRUE(pulled.Wait(Deadline()).ok());
  EXPECT_EQ(row[0], 0);
  EXPECT_EQ(trainer.Pull({id})[0][0], 1);
}

TEST(CachedClientTest, WithBoundsAPullAheadOfTheOwnCommitIsRefused) {
  TableHost host(1);
  const auto trainer = MakeCountingTrainer(host, 0, {1, 0}, 9);
  trainer->PushAndCommit({7});
  const uint64_t id = 7;
  float row[kDim];
  const absl::Status status = trainer->client()
                                  .rows->Pull(3, true, {{1, absl::MakeConstSpan(&id, 1), row}})
                                  .Wait(Deadline())
                                  .status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

// While no other trainer trains, the optimizer that runs here does the same as the servers'
// optimizer.
TEST(CachedClientTest, OwnUpdatesShowAsTheServersMadeThem) {
  for (const auto optimizer : {SPARSE_SGD, SPARSE_ADAGRAD, SPARSE_ADAM}) {
    TableHost plain_host(1), cached_host(2);
    LocalClient plain(plain_host, 0, 1, Asp());
    LocalClient inner(cached_host, 0, 1, Asp());
    CachedClient cached(ClientsOf(inner), {.rows_per_table = 1000, .read_bound = 4});
    const std::vector<TableSpec> specs = {MakeTableSpec(1, 17, optimizer)};
    ASSERT_TRUE(plain.CreateTables(specs, absl::Seconds(30)).ok());
    ASSERT_TRUE(cached.CreateTables(specs, absl::Seconds(30)).ok());
    for (uint64_t step = 1; step <= 12; ++step) {
      const auto ids = MakeIds(step / 3, 40);
      std::vector<std::vector<float>> rows;
      for (RowClient* client :
           {static_cast<RowClient*>(&plain), static_cast<RowClient*>(&cached)}) {
        rows.emplace_back(40 * 17);
        ASSERT_TRUE(client->Pull(step, true, {{1, ids, rows.back().data()}}).Wait(Deadline()).ok());
        const auto gradients = MakeValues(step, 40 * 17);
        client->Push(step, 0, {{1, ids, gradients.data()}});
        ASSERT_TRUE(client->Commit({step, {{1, 0.1}}, 0.25f, step == 8}).Wait(Deadline()).ok());
      }
      ASSERT_EQ(rows[0], rows[1]) << "optimizer " << optimizer << ", step " << step;
    }
    EXPECT_GT(cached.counts().hits, 100u);
  }
}

class KeptGradientsTest : public testing::Test {
 protected:
  static constexpr uint32_t kWriteBound = 2;
  KeptGradientsTest() { trainer_ = MakeCountingTrainer(host_, 0, {0, kWriteBound}, 4); }
  // The servers' state of a row: the number of gradients and of commits.
  struct Served {
    float gradients;
    uint32_t commits;
  };
  Served OnServer(uint64_t id) {
    float row[kDim];
    uint32_t version = 0;
    EXPECT_TRUE(observer_.Pull(0, false, {{1, absl::MakeConstSpan(&id, 1), row, &version, 0}})
                    .Wait(Deadline())
                    .ok());
    return {row[0], version - 1};
  }
  void Step(const std::vector<uint64_t>& ids, bool flush = false) {
    trainer_->Pull(ids);
    trainer_->PushAndCommit(ids, flush);
  }

  TableHost host_{1};
  std::unique_ptr<CountingTrainer> trainer_;
  LocalClient observer_{host_, 1, 2, Asp()};
};

TEST_F(KeptGradientsTest, ReachServersAsOneCommitWhenTheyAreDue) {
  for (int step = 1; step <= 2; ++step) {
    Step({7});
    EXPECT_EQ(OnServer(7).commits, 0u);
    EXPECT_EQ(trainer_->Pull({7})[0][0], static_cast<float>(step));
  }
  Step({7});
  EXPECT_EQ(OnServer(7).gradients, 3);
  EXPECT_EQ(OnServer(7).commits, 1u);
}

TEST_F(KeptGradientsTest, ReachServersWithAFlushAndBeforeItNothingIsSavedOrHashed) {
  Step({7});
  EXPECT_TRUE(
      absl::IsFailedPrecondition(trainer_->client().tables->Hash().Wait(Deadline()).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      trainer_->client().tables->Save(1, "/tmp", Deadline()).Wait(Deadline()).status()));
  Step({8}, /*flush=*/true);
  EXPECT_EQ(OnServer(7).gradients, 1);
  EXPECT_EQ(OnServer(8).gradients, 1);
  EXPECT_TRUE(trainer_->client().tables->Hash().Wait(Deadline()).ok());
}

TEST_F(KeptGradientsTest, RowsWithoutAPlaceHaveNothingKeptBack) {
  Step({1, 2, 3, 4});  // all places, and they stay
  Step({5});
  EXPECT_EQ(OnServer(5).gradients, 1);
  EXPECT_EQ(OnServer(1).gradients, 0);
  EXPECT_EQ(trainer_->Pull({1})[0][0], 1);
}

TEST_F(KeptGradientsTest, StepThatIsSkippedDropsItsOwnGradientsOnly) {
  Step({7});
  Step({8});
  trainer_->Pull({7});
  const float gradient[kDim] = {-1, 0};
  const uint64_t id = 7;
  trainer_->client().rows->Push(3, 0, {{1, absl::MakeConstSpan(&id, 1), gradient}});
  ASSERT_TRUE(
      trainer_->client().rows->Commit({3, {{1, 1.0f}}, 1, /*skip=*/true}).Wait(Deadline()).ok());
  EXPECT_EQ(OnServer(7).gradients, 1) << "kept since step 1";
  EXPECT_EQ(OnServer(8).gradients, 0);
}

TEST_F(KeptGradientsTest, RefusedPushFailsItsCommitAndKeepsTheOthers) {
  Step({7});
  const float broken[kDim] = {std::nanf(""), 0};
  const uint64_t id = 8;
  trainer_->client().rows->Push(2, 0, {{1, absl::MakeConstSpan(&id, 1), broken}});
  EXPECT_TRUE(absl::IsOutOfRange(
      trainer_->client().rows->Commit({2, {{1, 1.0f}}, 1, false}).Wait(Deadline()).status()));
  Step({9}, /*flush=*/true);
  EXPECT_EQ(OnServer(7).gradients, 1);
  EXPECT_EQ(OnServer(8).gradients, 0);
}

// A pull waits at the servers for the commit before it. A refused commit would keep the trainer
// waiting.
TEST_F(KeptGradientsTest, SumThatOverflowsFailsItsCommitAndEveryCallBehindIt) {
  const std::vector<uint64_t> ids = {7, 8};
  const float gradients[] = {1, 1, 2e38f, 1};
  float rows[2 * kDim];
  absl::Status committed;
  for (uint64_t step = 1; step <= 1 + kWriteBound; ++step) {
    ASSERT_TRUE(committed.ok()) << committed;
    ASSERT_TRUE(trainer_->client().rows->Pull(step, true, {{1, ids, rows}}).Wait(Deadline()).ok());
    ASSERT_TRUE(
        trainer_->client().rows->Push(step, 0, {{1, ids, gradients}}).Wait(Deadline()).ok());
    committed =
        trainer_->client().rows->Commit({step, {{1, 1.0f}}, 1, false}).Wait(Deadline()).status();
  }
  EXPECT_TRUE(absl::IsOutOfRange(committed)) << committed;
  EXPECT_NE(committed.message().find("the gradients of id 8 are finite and their sum is not"),
            absl::string_view::npos)
      << committed;
  EXPECT_EQ(trainer_->client()
                .rows->Pull(2 + kWriteBound, true, {{1, ids, rows}})
                .Wait(Deadline())
                .status(),
            committed);
  EXPECT_EQ(trainer_->client()
                .rows->Commit({2 + kWriteBound, {{1, 1.0f}}, 1, false})
                .Wait(Deadline())
                .status(),
            committed);
  EXPECT_EQ(trainer_->client().tables->Statistics().Wait(Deadline())->tables(0).rejected(), 1u);
}

// Servers see sums of the gradients that were kept in. So the client reports those that were kept
// out.
TEST(KeptGuardTest, GradientsThatAreKeptOutAreInTheStatistics) {
  for (const auto policy : {TableSpec::REJECT, TableSpec::SKIP, TableSpec::CLIP}) {
    for (const uint32_t write_bound : {0u, 3u}) {
      SCOPED_TRACE(TableSpec::NonFinite_Name(policy) + " " + std::to_string(write_bound));
      TableHost host(1);
      TableSpec spec = CountingSpec();
      spec.set_non_finite(policy);
      const CacheOptions options{
          .rows_per_table = 9, .read_bound = 1, .write_bound = write_bound, .trainer = 1};
      LocalClient inner(host, 1, 2, Asp());
      CachedClient client(ClientsOf(inner), options);
      ASSERT_TRUE(client.CreateTables({spec}, absl::Seconds(30)).ok());
      const std::vector<uint64_t> ids = {7, 8};
      const float gradients[] = {1, 1, 1, std::nanf("")};
      const bool refused = !client.Push(1, 0, {{1, ids, gradients}}).Wait(Deadline()).ok();
      EXPECT_EQ(refused, policy == TableSpec::REJECT);
      EXPECT_EQ(client.Commit({1, {{1, 1.0f}}, 1, false, /*flush=*/true}).Wait(Deadline()).ok(),
                !refused);
      const auto statistics = client.Statistics().Wait(Deadline());
      ASSERT_TRUE(statistics.ok()) << statistics.status();
      ASSERT_EQ(statistics->tables_size(), 1);
      const TableStatistics& table = statistics->tables(0);
      EXPECT_EQ(table.rejected(), policy == TableSpec::REJECT ? 1u : 0u);
      EXPECT_EQ(table.skipped(), policy == TableSpec::SKIP ? 1u : 0u)
          << "counted once, here or there";
      EXPECT_EQ(table.mended(), policy == TableSpec::CLIP ? 1u : 0u);
      EXPECT_EQ(table.first_offender().id(), 8u);
      EXPECT_EQ(table.first_offender().trainer(), 1u);
      EXPECT_EQ(table.first_offender().step(), 1u);
    }
  }
}

TEST_F(KeptGradientsTest, NormIsOfTheStepsGradientsEachRowSummed) {
  const float first[kDim] = {1, 2}, second[kDim] = {2, 2};
  const uint64_t id = 7;
  trainer_->Pull({7});
  trainer_->client().rows->Push(1, 0, {{1, absl::MakeConstSpan(&id, 1), first}});
  trainer_->client().rows->Push(1, 1, {{1, absl::MakeConstSpan(&id, 1), second}});
  const auto norm = trainer_->client().rows->GradientNorm(1).Wait(Deadline());
  ASSERT_TRUE(norm.ok()) << norm.status();
  EXPECT_EQ(*norm, absl::uint128(25) << 64);
}

// Commits reach the servers, but their answers may be lost. Records the versions with which pulls
// ask.
class LostAnswers : public ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;

  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override {
    asked_.assign(segments[0].versions, segments[0].versions + segments[0].ids.size());
    return ForwardingClient::Pull(step, create, std::move(segments));
  }
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override {
    const auto committed = ForwardingClient::Commit(args);
    if (!loses_) return committed;
    EXPECT_TRUE(committed.Wait(Deadline()).ok());
    return rpc::Future<rpc::Done>::Ready(absl::UnavailableError("the answer was lost"));
  }
  void LoseAnswers() { loses_ = true; }
  const std::vector<uint32_t>& asked() const { return asked_; }

 private:
  bool loses_ = false;
  std::vector<uint32_t> asked_;
};

TEST(CachedClientTest, AfterACommitThatFailedNoRowOfBeforeIsGoodEnough) {
  for (const Bounds& bounds : {Bounds{4, 0}, Bounds{0, 2}, Bounds{4, 2}}) {
    SCOPED_TRACE(testing::Message()
                 << "read bound " << bounds.read << ", write bound " << bounds.write);
    TableHost host(1);
    LocalClient inner(host, 0, 2, Asp());
    LostAnswers answers(ClientsOf(inner));
    CachedClient client(
        ClientsOf(answers),
        {.rows_per_table = 9, .read_bound = bounds.read, .write_bound = bounds.write});
    ASSERT_TRUE(client.CreateTables({CountingSpec()}, absl::Seconds(30)).ok());
    const std::vector<uint64_t> ids = {7, 8};
    const std::vector<float> gradients(ids.size() * kDim, -1);
    std::vector<float> rows(ids.size() * kDim);
    const auto step = [&](uint64_t number) {
      EXPECT_TRUE(client.Pull(number, true, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
      client.Push(number, 0, {{1, ids, gradients.data()}});
      return client.Commit({number, {{1, 1.0f}}, 1, false, /*flush=*/true}).Wait(Deadline()).ok();
    };
    ASSERT_TRUE(step(1));
    answers.LoseAnswers();
    ASSERT_FALSE(step(2));
    EXPECT_NE(answers.asked(), (std::vector<uint32_t>{0, 0})) << "rows were kept after step 1";
    EXPECT_TRUE(client.Pull(3, true, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
    EXPECT_EQ(answers.asked(), (std::vector<uint32_t>{0, 0}))
        << "nobody knows what is in the servers' rows";
    EXPECT_EQ(rows, std::vector<float>(ids.size() * kDim, 2));
  }
}

}  // namespace
}  // namespace tandem::ps
