// The remote client with rows through shared memory: the same bits as over gRPC. Nothing is lost or
// doubled when servers restart.
// Without shared memory the client uses gRPC.
#include <thread>

#include "gtest/gtest.h"
#include "ps/local/local_client.h"
#include "tests/ps/cluster.h"
#include "tests/ps/training.h"

namespace tandem::ps {
namespace {

RemoteClientOptions Shared(size_t message_bytes = size_t{1} << 20) {
  return {.timeout = absl::Seconds(30), .message_bytes = message_bytes, .shared_memory = true};
}
CommitArgs Args(uint64_t step) { return {step, {{1, 1.0f}}, 1, false}; }

TEST(SharedMemoryTest, TheSameBitsAsInOneProcessForAnyNumberOfServersAndAnyCut) {
  TableHost host(1);
  const auto make_local = [&](uint32_t trainer) {
    return std::make_unique<LocalClient>(host, trainer, kTrainers);
  };
  const auto reference = TrainAll(make_local, {1, 6});
  for (int servers : {1, 3}) {
    for (size_t message_bytes : {size_t{1}, size_t{700}, size_t{1} << 20}) {
      PsCluster cluster(servers, servers == 3 ? 2 : 1);
      SCOPED_TRACE(testing::Message()
                   << servers << " servers, messages of " << message_bytes << " bytes");
      int num_shared = 0;
      const auto make = [&](uint32_t trainer) {
        return cluster.MakeClient(trainer, kTrainers, Shared(message_bytes));
      };
      const TrainerClients clients = MakeClients(make);
      ExpectSame(TrainAll(clients, {1, 6}), reference);
      for (const auto& client : clients)
        num_shared += static_cast<RemoteClient&>(*client.rows).num_shared();
      EXPECT_EQ(num_shared, 2 * servers);
    }
  }
}

// One trainer of one table, which counts: rows start at zero, gradients are one, the rate is one.
class SharedMemoryRestartTest : public testing::Test {
 protected:
  SharedMemoryRestartTest() : cluster_(2, 1), client_(cluster_.MakeClient(0, 1, Shared(4096))) {
    TableSpec spec = MakeTableSpec(1, 16);
    spec.set_init_stddev(0);
    const absl::Status created = client_->CreateTables({spec}, absl::Seconds(30));
    EXPECT_TRUE(created.ok()) << created;
  }
  void Restart(bool offers_shared_memory) {
    for (size_t i = 0; i < 2; ++i) cluster_[i].Kill();
    for (size_t i = 0; i < 2; ++i) cluster_[i].Restart(offers_shared_memory);
  }
  // Pulls, pushes and commits. Restarts the servers while the push is on its way.
  void StepAcrossRestart(bool offers_shared_memory) {
    const auto push = client_->Push(step_, 0, {{1, ids_, gradients_.data()}});
    Restart(offers_shared_memory);
    const auto committed = client_->Commit(Args(step_)).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
    EXPECT_TRUE(push.Wait(Deadline()).ok());
    const auto pulled = client_->Pull(++step_, true, {{1, ids_, rows_.data()}}).Wait(Deadline());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    for (const float value : rows_) ASSERT_EQ(value, -static_cast<float>(step_ - 1));
  }

  PsCluster cluster_;
  const std::unique_ptr<RemoteClient> client_;
  const std::vector<uint64_t> ids_ = MakeIds(1, 3000);
  std::vector<float> rows_ = std::vector<float>(3000 * 16),
                     gradients_ = std::vector<float>(3000 * 16, 1.0f);
  uint64_t step_ = 1;
};

// dmlc/ps-lite#68: after a server restart, messages in flight are lost or counted twice.
TEST_F(SharedMemoryRestartTest, NothingIsLostOrDoubledAcrossRestartsWithAndWithoutSharedMemory) {
  for (const bool offers : {true, false, true}) StepAcrossRestart(offers);
}

TEST_F(SharedMemoryRestartTest, AServerWithoutSharedMemoryIsReachedOverGrpc) {
  Restart(/*offers_shared_memory=*/false);
  StepAcrossRestart(/*offers_shared_memory=*/false);
  EXPECT_EQ(client_->num_shared(), 0);
}

TEST_F(SharedMemoryRestartTest, AClientThatDoesNotAskGoesOverGrpc) {
  const auto plain = cluster_.MakeClient(0, 1, {absl::Seconds(30), 4096});
  ASSERT_TRUE(plain->CreateTables({}, absl::Seconds(30)).ok());
  EXPECT_EQ(plain->num_shared(), 0);
  StepAcrossRestart(true);
}

TEST_F(SharedMemoryRestartTest, RefusedInputIsRefusedWithItsCodeAndTheNextCallWorks) {
  std::vector<float> broken = gradients_;
  broken[40] = std::nanf("");
  const absl::Status status =
      client_->Push(1, 0, {{1, ids_, broken.data()}}).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_NE(status.message().find("ps-"), absl::string_view::npos) << status;
  EXPECT_TRUE(client_->Pull(1, true, {{1, ids_, rows_.data()}}).Wait(Deadline()).ok());
  EXPECT_EQ(client_->num_shared(), 2);
}

TEST_F(SharedMemoryRestartTest, DestructionAndAbortCompleteWhatIsInFlight) {
  auto client = cluster_.MakeClient(0, 1, Shared());
  TableSpec spec = MakeTableSpec(1, 16);
  spec.set_init_stddev(0);
  ASSERT_TRUE(client->CreateTables({spec}, absl::Seconds(30)).ok());
  const auto parked = client->Pull(2, true, {{1, ids_, rows_.data()}});
  client->Abort(absl::AbortedError("a peer is gone"));
  EXPECT_TRUE(absl::IsAborted(parked.Wait(Deadline()).status()))
      << parked.Wait(Deadline()).status();
  const auto later = client->Pull(2, true, {{1, ids_, rows_.data()}});
  client.reset();
  EXPECT_TRUE(later.ready());
}

}  // namespace
}  // namespace tandem::ps
