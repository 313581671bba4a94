// Nothing is lost and nothing doubled on a bad network. Rows start at zero, gradients are small
// integers, SGD has rate 1.
// So every weight is minus a sum of integers, exact in f32: one push too few or too many shows in
// it.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "gtest/gtest.h"
#include "ps/local/local_client.h"
#include "tests/ps/caching/merging.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"
#include "tests/support/connection_cutter.h"
#include "tests/support/fault_proxy.h"

namespace tandem::ps {
namespace {

using support::ConnectionCutter;
using support::FaultCounts;
using support::FaultPlan;
using support::FaultProxy;

constexpr uint32_t kTrainers = 2;
constexpr size_t kServers = 2, kDim = 3, kIds = 40;
constexpr uint64_t kSteps = 12, kSkipped = 5;

absl::Time Deadline() { return absl::Now() + absl::Seconds(20); }

std::vector<TableSpec> Specs() {
  std::vector<TableSpec> specs = {MakeTableSpec(1, kDim), MakeTableSpec(2, kDim)};
  for (TableSpec& spec : specs) spec.set_init_stddev(0);
  return specs;
}

// The ids that a trainer uses in a step. About half of them occur in every step and for every
// trainer.
std::vector<uint64_t> Ids(uint32_t trainer, uint64_t step, uint32_t table) {
  std::set<uint64_t> ids;
  for (uint64_t i = 1; ids.size() < kIds; ++i) {
    ids.insert(i <= kIds / 2 ? i : 1 + Fmix64(step * 64 + trainer * 8 + table + i * 4096) % 500);
  }
  return {ids.begin(), ids.end()};
}

// The gradients of one slice of a push: integers from -3 to 3, never 0.
std::vector<float> Gradients(uint32_t trainer, uint64_t step, uint32_t slice) {
  std::vector<float> gradients(kIds * kDim);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int drawn =
        static_cast<int>(Fmix64(step * 1000003 + trainer * 101 + slice * 11 + i * 7919) % 6);
    gradients[i] = static_cast<float>(drawn < 3 ? drawn - 3 : drawn - 2);
  }
  return gradients;
}

// The expected value of every weight, counted in integers.
class Tally {
 public:
  void Add(uint64_t step) {
    if (step == kSkipped) return;
    for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
      for (uint32_t table : {1, 2}) {
        const auto ids = Ids(trainer, step, table);
        for (uint32_t slice : {2 * trainer, 2 * trainer + 1}) {
          const auto gradients = Gradients(trainer, step, slice);
          for (size_t i = 0; i < gradients.size(); ++i) {
            sums_[{table, ids[i / kDim], i % kDim}] += static_cast<int>(gradients[i]);
          }
        }
      }
    }
  }
  float Weight(uint32_t table, uint64_t id, size_t column) const {
    const auto found = sums_.find({table, id, column});
    return found == sums_.end() ? 0.0f : static_cast<float>(-found->second);
  }

 private:
  std::map<std::tuple<uint32_t, uint64_t, size_t>, int> sums_;
};

ConsistencySpec Permit(uint32_t steps) {
  ConsistencySpec consistency;
  consistency.set_mode(ConsistencySpec::PERMIT);
  consistency.set_staleness(steps);
  return consistency;
}

struct Outcome {
  std::vector<absl::uint128> norms;
  HashResult hash;
};

// One trainer's part of the whole run. In BSP its pulls must equal the tally at every step.
void Train(const Clients& client, uint32_t trainer, bool bsp, Outcome* outcome) {
  ASSERT_TRUE(client.tables->CreateTables(Specs(), absl::Seconds(20)).ok());
  Tally tally;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    std::vector<std::vector<uint64_t>> ids;
    std::vector<std::vector<float>> rows(2, std::vector<float>(kIds * kDim));
    for (uint32_t table : {1, 2}) ids.push_back(Ids(trainer, step, table));
    const auto pulled =
        client.rows->Pull(step, true, {{1, ids[0], rows[0].data()}, {2, ids[1], rows[1].data()}})
            .Wait(Deadline());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    for (uint32_t table : {1, 2}) {
      for (size_t i = 0; bsp && i < kIds * kDim; ++i) {
        ASSERT_EQ(rows[table - 1][i], tally.Weight(table, ids[table - 1][i / kDim], i % kDim))
            << "step " << step << ", table " << table << ", id " << ids[table - 1][i / kDim];
      }
    }
    const CommitArgs commit{step, {{1, 1.0f}, {2, 1.0f}}, 1, step == kSkipped};
    std::vector<std::vector<float>> gradients;  // read until their push is acknowledged
    std::vector<rpc::Future<rpc::Done>> pushes;
    for (uint32_t slice : {2 * trainer, 2 * trainer + 1})
      gradients.push_back(Gradients(trainer, step, slice));
    for (uint32_t part : {0, 1}) {
      const float* values = gradients[part].data();
      pushes.push_back(
          client.rows->Push(step, 2 * trainer + part, {{1, ids[0], values}, {2, ids[1], values}}));
    }
    for (const auto& push : pushes) {
      const auto pushed = push.Wait(Deadline());
      ASSERT_TRUE(pushed.ok()) << pushed.status();
    }
    if (step % 3 == 0) {
      const auto norm = client.rows->GradientNorm(step).Wait(Deadline());
      ASSERT_TRUE(norm.ok()) << norm.status();
      outcome->norms.push_back(*norm);
    }
    const auto committed = client.rows->Commit(commit).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
    tally.Add(step);
  }
}

using ClientMaker = std::function<ClientStack(uint32_t trainer)>;

Outcome TrainAll(const std::vector<ClientStack>& clients, bool bsp = true) {
  std::vector<Outcome> outcomes(kTrainers);
  std::vector<std::thread> threads;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    threads.emplace_back(
        [&, trainer] { Train(clients[trainer], trainer, bsp, &outcomes[trainer]); });
  }
  for (auto& thread : threads) thread.join();
  const auto hash = clients[0].tables->Hash().Wait(Deadline());
  EXPECT_TRUE(hash.ok()) << hash.status();
  if (hash.ok()) outcomes[0].hash = *hash;
  return outcomes[0];
}

Outcome TrainAll(const ClientMaker& make, bool bsp = true) {
  std::vector<ClientStack> clients;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) clients.push_back(make(trainer));
  return TrainAll(clients, bsp);
}

class ExactlyOnceTest : public testing::TestWithParam<uint64_t> {
 protected:
  static void SetUpTestSuite() {
    TableHost host(2);
    const auto make = [&host](uint32_t trainer) {
      return std::make_unique<LocalClient>(host, trainer, kTrainers);
    };
    undisturbed_ = new Outcome(TrainAll(make));
    ASSERT_EQ(undisturbed_->norms.size(), kSteps / 3);
  }
  static void TearDownTestSuite() { delete undisturbed_; }

  // Puts a proxy before each server and, if `max_cuts` is positive, a bad cable before each proxy.
  void Connect(const FaultPlan& plan, int max_cuts = 0) {
    for (size_t i = 0; i < cluster_->size(); ++i) {
      proxies_.push_back(std::make_unique<FaultProxy>((*cluster_)[i].address(), plan));
      addresses_.push_back(proxies_.back()->address());
      if (max_cuts == 0) continue;
      cables_.push_back(
          std::make_unique<ConnectionCutter>(addresses_.back(), plan.seed + i, 6000, max_cuts));
      addresses_.back() = cables_.back()->address();
    }
  }
  // Integers have the same sum in every mode.
  void TrainAndExpectTheUndisturbedResult(const ConsistencySpec& consistency = {},
                                          bool merged = false) {
    const RemoteClientOptions options{absl::Seconds(20), kMessageBytes, consistency};
    const bool bsp = consistency.mode() == ConsistencySpec::BSP;
    const auto make = [&](uint32_t trainer) {
      return cluster_->MakeClient(trainer, kTrainers, options, addresses_);
    };
    MergingHost host(kTrainers);
    const Outcome outcome =
        merged ? TrainAll(host.MakeClients(make, {.push_bytes = 500})) : TrainAll(make, bsp);
    EXPECT_TRUE(!bsp || outcome.norms == undisturbed_->norms);
    ExpectUndisturbed(outcome.hash);
    // Messages that the network still keeps arrive long after their step and must change nothing.
    for (const auto& proxy : proxies_) ASSERT_TRUE(proxy->ReplayKept());
    const auto direct = cluster_->MakeClient(0, kTrainers, options);
    ASSERT_TRUE(direct->CreateTables(Specs(), absl::Seconds(20)).ok());
    ExpectUndisturbed(*direct->Hash().Wait(Deadline()));
    ExpectTally(ClientsOf(*direct));
    const FaultCounts pushes = Counts("Push");
    EXPECT_EQ(pushes.copies_refused, 0u)
        << "a push that comes again has the answer of the first time";
  }
  FaultCounts Counts(const std::string& method) const {
    FaultCounts sum;
    for (const auto& proxy : proxies_) {
      const FaultCounts counts = proxy->counts(method);
      sum.messages += counts.messages;
      sum.dropped_requests += counts.dropped_requests;
      sum.dropped_replies += counts.dropped_replies;
      sum.delayed += counts.delayed;
      sum.duplicated += counts.duplicated;
      sum.replayed += counts.replayed;
      sum.copies_accepted += counts.copies_accepted;
      sum.copies_refused += counts.copies_refused;
    }
    return sum;
  }
  int num_cuts() const {
    int sum = 0;
    for (const auto& cable : cables_) sum += cable->num_cuts();
    return sum;
  }

 private:
  static void ExpectUndisturbed(const HashResult& hash) {
    EXPECT_EQ(hash.hash, undisturbed_->hash.hash);
    EXPECT_EQ(hash.num_rows, undisturbed_->hash.num_rows);
  }
  static void ExpectTally(const Clients& client) {
    Tally tally;
    for (uint64_t step = 1; step <= kSteps; ++step) tally.Add(step);
    std::vector<uint64_t> ids(500);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = i + 1;
    for (uint32_t table : {1, 2}) {
      std::vector<float> rows(ids.size() * kDim);
      ASSERT_TRUE(client.rows->Pull(0, false, {{table, ids, rows.data()}}).Wait(Deadline()).ok());
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(rows[i], tally.Weight(table, ids[i / kDim], i % kDim))
            << "table " << table << ", id " << ids[i / kDim];
      }
    }
  }

  static Outcome* undisturbed_;
  std::unique_ptr<PsCluster> cluster_ = std::make_unique<PsCluster>(kServers, 2);
  static constexpr size_t kMessageBytes = 500;
  std::vector<std::unique_ptr<FaultProxy>> proxies_;
  std::vector<std::unique_ptr<ConnectionCutter>> cables_;
  std::vector<std::string> addresses_;
};
Outcome* ExactlyOnceTest::undisturbed_ = nullptr;

// Persia gives up a batch whose update fails. A client here retries until its push arrives.
TEST_F(ExactlyOnceTest, PushesThatNeverArriveAreSentAgain) {
  Connect({.seed = 1, .drop_request = 60});
  TrainAndExpectTheUndisturbedResult();
  EXPECT_GT(Counts("Push").dropped_requests, 5u);
  EXPECT_GT(Counts("Push").messages, 150u);
}

TEST_F(ExactlyOnceTest, PushesWhoseReplyIsLostCountOnce) {
  Connect({.seed = 2, .drop_reply = 60});
  TrainAndExpectTheUndisturbedResult();
  EXPECT_GT(Counts("Push").dropped_replies, 5u);
  EXPECT_GT(Counts("Commit").dropped_replies + Counts("GradientNorm").dropped_replies, 0u);
}

TEST_F(ExactlyOnceTest, SecondCopiesCountOnceAtOnceAndLongAfter) {
  Connect({.seed = 3, .duplicate = 400, .replay = 400});
  TrainAndExpectTheUndisturbedResult();
  const FaultCounts pushes = Counts("Push");
  EXPECT_GT(pushes.duplicated, 50u);
  EXPECT_GT(pushes.replayed, 50u);
  EXPECT_EQ(pushes.copies_accepted, pushes.duplicated + pushes.replayed)
      << "each was seen and acknowledged";
}

TEST_F(ExactlyOnceTest, ConnectionsCutInTheMiddleOfAMessageLoseNothing) {
  Connect({}, /*max_cuts=*/12);
  TrainAndExpectTheUndisturbedResult();
  EXPECT_GT(num_cuts(), 10);
}

TEST_P(ExactlyOnceTest, EverythingAtOnce) {
  Connect({.seed = GetParam(),
           .drop_request = 20,
           .drop_reply = 20,
           .delay = 100,
           .duplicate = 150,
           .replay = 150},
          /*max_cuts=*/4);
  TrainAndExpectTheUndisturbedResult();
  const FaultCounts pushes = Counts("Push"), pulls = Counts("Pull");
  EXPECT_GT(pushes.dropped_requests + pulls.dropped_requests, 0u);
  EXPECT_GT(pushes.dropped_replies + pulls.dropped_replies, 0u);
  EXPECT_GT(pushes.delayed, 0u);
  EXPECT_GT(pushes.copies_accepted, 0u);
  EXPECT_GT(num_cuts(), 2);
}

TEST_F(ExactlyOnceTest, ModesThatCommitEachTrainerByItselfCountPushesOnceToo) {
  Connect({.seed = 15,
           .drop_request = 20,
           .drop_reply = 20,
           .delay = 100,
           .duplicate = 150,
           .replay = 150},
          /*max_cuts=*/4);
  TrainAndExpectTheUndisturbedResult(Permit(2));
  EXPECT_GT(Counts("Push").copies_accepted, 0u);
}

// A trainer that sums a machine's gradients and retries must neither double nor lose any trainer's
// gradients.
TEST_F(ExactlyOnceTest, MergedPushesCountOnceForAllTheirTrainers) {
  Connect({.seed = 16,
           .drop_request = 20,
           .drop_reply = 20,
           .delay = 100,
           .duplicate = 150,
           .replay = 150},
          /*max_cuts=*/4);
  TrainAndExpectTheUndisturbedResult({}, /*merged=*/true);
  EXPECT_GT(Counts("Push").dropped_replies, 0u);
  EXPECT_GT(Counts("Push").copies_accepted, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExactlyOnceTest, testing::Values(11, 12, 13, 14));

}  // namespace
}  // namespace tandem::ps
