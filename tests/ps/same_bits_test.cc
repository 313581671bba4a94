// The promise of ps/client.h: LocalClient with any number of workers and RemoteClient with any number of servers, however
// messages are cut, pull the same bits, give the same norms and end with the same hash.
#include <bit>
#include <cstring>
#include <functional>
#include <thread>

#include "gtest/gtest.h"
#include "ps/client_local.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kTrainers = 2;
constexpr uint64_t kSteps = 6;

// What a trainer saw, to be compared bit for bit.
struct Trace {
  std::vector<float> rows;
  std::vector<absl::uint128> norms;
  HashResult hash;
};

std::vector<TableSpec> Specs() {
  return {MakeTableSpec(1, 3, SPARSE_SGD), MakeTableSpec(2, 17, SPARSE_ADAGRAD), MakeTableSpec(3, 8, SPARSE_ADAM)};
}

absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

// Steps of one trainer: pull, make gradients of the rows, push them in two slices, ask for the norm, commit. `nudged` flips
// one bit of one gradient.
void Train(Client& client, uint32_t trainer, bool nudged, Trace* trace) {
  ASSERT_TRUE(client.CreateTables(Specs(), absl::Seconds(30)).ok());
  for (uint64_t step = 1; step <= kSteps; ++step) {
    std::vector<std::vector<uint64_t>> ids;
    std::vector<std::vector<float>> rows, gradients;
    std::vector<PullSegment> pulls;
    for (const TableSpec& spec : Specs()) {
      ids.push_back(MakeIds(step * 31 + trainer * 7 + spec.number(), 40 + 13 * spec.number()));
      rows.emplace_back(ids.back().size() * spec.dim());
    }
    for (size_t t = 0; t < 3; ++t) pulls.push_back({Specs()[t].number(), ids[t], rows[t].data()});
    ASSERT_TRUE(client.Pull(step, true, pulls).Wait(Deadline()).ok());
    for (const auto& values : rows) trace->rows.insert(trace->rows.end(), values.begin(), values.end());
    std::vector<rpc::Future<rpc::Done>> pushed;
    for (uint32_t part = 0; part < 2; ++part) {
      std::vector<PushSegment> pushes;
      for (size_t t = 0; t < 3; ++t) {
        auto gradient = MakeValues(step * 101 + trainer * 11 + part, rows[t].size());
        for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += 0.5f * rows[t][i];
        if (nudged && step == 3 && trainer == 1 && part == 1 && t == 2) {
          gradient[4] = std::bit_cast<float>(std::bit_cast<uint32_t>(gradient[4]) ^ (1u << 12));
        }
        gradients.push_back(std::move(gradient));
        pushes.push_back({Specs()[t].number(), ids[t], gradients.back().data()});
      }
      pushed.push_back(client.Accumulate(step, trainer * 2 + part, pushes));
    }
    for (const auto& push : pushed) ASSERT_TRUE(push.Wait(Deadline()).ok());
    const auto norm = client.GradientNorm(step).Wait(Deadline());
    ASSERT_TRUE(norm.ok()) << norm.status();
    trace->norms.push_back(*norm);
    CommitArgs commit{step, {{1, 0.1f}, {2, 0.05f}, {3, 0.01f}}, 0.25f, step == 4};
    const auto committed = client.Commit(commit).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
  }
  const auto hash = client.Hash().Wait(Deadline());
  ASSERT_TRUE(hash.ok()) << hash.status();
  trace->hash = *hash;
}

using MakeClient = std::function<std::unique_ptr<Client>(uint32_t trainer)>;

std::vector<Trace> TrainAll(const MakeClient& make, bool nudged = false) {
  std::vector<Trace> traces(kTrainers);
  std::vector<std::unique_ptr<Client>> clients;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) clients.push_back(make(trainer));
  std::vector<std::thread> threads;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    threads.emplace_back([&, trainer] { Train(*clients[trainer], trainer, nudged, &traces[trainer]); });
  }
  for (auto& thread : threads) thread.join();
  return traces;
}

std::vector<Trace> TrainLocal(int num_workers, bool nudged = false) {
  TableHost host(num_workers);
  return TrainAll([&](uint32_t trainer) { return std::make_unique<LocalClient>(host, trainer, kTrainers); }, nudged);
}

void ExpectSame(const std::vector<Trace>& a, const std::vector<Trace>& b) {
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    ASSERT_EQ(a[trainer].rows.size(), b[trainer].rows.size());
    EXPECT_EQ(0, std::memcmp(a[trainer].rows.data(), b[trainer].rows.data(), a[trainer].rows.size() * sizeof(float)));
    EXPECT_EQ(a[trainer].norms, b[trainer].norms);
    EXPECT_EQ(a[trainer].hash.hash, b[trainer].hash.hash);
    EXPECT_EQ(a[trainer].hash.num_rows, b[trainer].hash.num_rows);
  }
}

class SameBitsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { reference_ = new std::vector<Trace>(TrainLocal(1)); }
  static void TearDownTestSuite() { delete reference_; }
  static std::vector<Trace>* reference_;
};
std::vector<Trace>* SameBitsTest::reference_ = nullptr;

TEST_F(SameBitsTest, ReferenceLearnedSomething) {
  EXPECT_GT((*reference_)[0].hash.num_rows, 300u);
  EXPECT_EQ((*reference_)[0].hash.hash, (*reference_)[1].hash.hash);
  EXPECT_NE((*reference_)[0].norms[0], (*reference_)[0].norms[1]);
}

TEST_F(SameBitsTest, LocalWithAnyNumberOfWorkers) {
  for (int workers : {1, 2, 4}) ExpectSame(TrainLocal(workers), *reference_);
}

TEST_F(SameBitsTest, RemoteWithAnyNumberOfServersAndAnyCut) {
  for (int servers : {1, 2, 4}) {
    for (size_t message_bytes : {size_t{1}, size_t{700}, size_t{1} << 20}) {
      PsCluster cluster(servers, servers == 2 ? 2 : 1);
      SCOPED_TRACE(testing::Message() << servers << " servers, messages of " << message_bytes << " bytes");
      ExpectSame(TrainAll([&](uint32_t trainer) {
                   return cluster.MakeClient(trainer, kTrainers, {absl::Seconds(30), message_bytes});
                 }),
                 *reference_);
    }
  }
}

TEST_F(SameBitsTest, HashSeesOneBitOfOneGradient) {
  const auto nudged = TrainLocal(2, /*nudged=*/true);
  EXPECT_NE(nudged[0].hash.hash, (*reference_)[0].hash.hash);
  EXPECT_EQ(nudged[0].hash.num_rows, (*reference_)[0].hash.num_rows);
}

}  // namespace
}  // namespace tandem::ps
