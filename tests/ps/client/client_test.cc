// Both clients: evaluation pulls, refusals, aborts. The remote client too when servers are slow,
// gone or come back.
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "ps/wire/message_limits.h"
#include "rpc/protocol_version.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

std::vector<TableSpec> Specs() { return {MakeTableSpec(1, 4)}; }
CommitArgs Args(uint64_t step) { return {step, {{1, 1.0f}}, 1, false}; }

enum class Tables {
  LOCAL,
  REMOTE,
  REMOTE_ALONE
};  // on a host of this process, on two servers, on one with long messages

// Two trainers.
class ClientTest : public testing::TestWithParam<Tables> {
 protected:
  ClientTest() {
    for (uint32_t trainer = 0; trainer < 2; ++trainer) {
      if (GetParam() != Tables::LOCAL)
        clients_.push_back(
            cluster_.MakeClient(trainer, 2, {absl::Seconds(30), alone_ ? 4096u : 64u}));
      else
        clients_.push_back(std::make_unique<LocalClient>(host_, trainer, 2));
      const absl::Status created = clients_.back().tables->CreateTables(Specs(), absl::Seconds(30));
      EXPECT_TRUE(created.ok()) << created;
    }
  }
  rpc::Future<rpc::Done> Pull(const Clients& client, uint64_t step,
                              const std::vector<uint64_t>& ids, float* rows) {
    return client.rows->Pull(step, true, {{1, ids, rows}});
  }

  const bool alone_ = GetParam() == Tables::REMOTE_ALONE;
  PsCluster cluster_{alone_ ? 1 : 2, 1};
  TableHost host_{2};
  std::vector<ClientStack> clients_;
  const std::vector<uint64_t> ids_ = MakeIds(1, 30);
  std::vector<float> rows_ = std::vector<float>(120);
};

TEST_P(ClientTest, EvaluationPullInsertsNothingAndShowsWhatTrainingWouldSee) {
  std::vector<float> shown(120);
  ASSERT_TRUE(clients_[0].rows->Pull(0, false, {{1, ids_, shown.data()}}).Wait(Deadline()).ok());
  ASSERT_TRUE(Pull(clients_[0], 1, ids_, rows_.data()).Wait(Deadline()).ok());
  EXPECT_EQ(shown, rows_);
}

TEST_P(ClientTest, BadInputIsRefusedAndTheNextCallWorks) {
  const std::vector<uint64_t> zero = {3, 0}, twice = {3, 3};
  std::vector<float> gradients(120, 1), broken = gradients;
  broken[77] = std::nanf("");
  for (const auto& bad : {clients_[0].rows->Pull(0, true, {{1, zero, rows_.data()}}),
                          clients_[0].rows->Pull(0, true, {{1, twice, rows_.data()}}),
                          clients_[0].rows->Pull(0, true, {{2, ids_, rows_.data()}}),
                          clients_[0].rows->Push(1, 0, {{1, twice, gradients.data()}}),
                          clients_[0].rows->Push(3, 0, {{1, ids_, gradients.data()}})}) {
    EXPECT_TRUE(absl::IsInvalidArgument(bad.Wait(Deadline()).status()))
        << bad.Wait(Deadline()).status();
  }
  const absl::Status rejected =
      clients_[1].rows->Push(1, 0, {{1, ids_, broken.data()}}).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsOutOfRange(rejected)) << rejected;
  EXPECT_TRUE(Pull(clients_[0], 1, ids_, rows_.data()).Wait(Deadline()).ok());
}

TEST_P(ClientTest, CommitAfterARefusedPushFailsAndAppliesNothing) {
  std::vector<float> broken(120, std::nanf(""));
  clients_[0].rows->Push(1, 0, {{1, ids_, broken.data()}});
  EXPECT_TRUE(absl::IsOutOfRange(clients_[0].rows->Commit(Args(1)).Wait(Deadline()).status()));
}

TEST_P(ClientTest, AStepWhosePushWasRefusedCanBePushedAgain) {
  std::vector<float> before(120), gradients(120, 1), broken(120, std::nanf(""));
  ASSERT_TRUE(Pull(clients_[0], 1, ids_, before.data()).Wait(Deadline()).ok());
  const auto one = absl::MakeConstSpan(ids_).first(
      1);  // one message: of several, the last may be refused when those of the next call come
  clients_[0].rows->Push(1, 0, {{1, one, broken.data()}});
  EXPECT_TRUE(absl::IsOutOfRange(clients_[0].rows->Commit(Args(1)).Wait(Deadline()).status()));
  std::vector<rpc::Future<rpc::Done>> both;
  for (const auto& client : clients_) {
    client.rows->Push(1, 0, {{1, ids_, gradients.data()}});
    both.push_back(client.rows->Commit(Args(1)));
  }
  for (const auto& committed : both)
    ASSERT_TRUE(committed.Wait(Deadline()).ok()) << committed.Wait(Deadline()).status();
  ASSERT_TRUE(Pull(clients_[0], 2, ids_, rows_.data()).Wait(Deadline()).ok());
  for (size_t i = 0; i < 120; ++i) EXPECT_EQ(rows_[i], before[i] - 2);
}

TEST_P(ClientTest, CommitWaitsForTheOtherTrainerAndPullForTheCommit) {
  std::vector<float> before(120), gradients(120, 1);
  ASSERT_TRUE(Pull(clients_[0], 1, ids_, before.data()).Wait(Deadline()).ok());
  const auto ahead = Pull(clients_[0], 2, ids_, rows_.data());
  const auto push = clients_[0].rows->Push(1, 0, {{1, ids_, gradients.data()}});
  ASSERT_TRUE(push.Wait(Deadline()).ok()) << "a parked pull must not hold up pushes";
  const auto commit = clients_[0].rows->Commit(Args(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(commit.Wait(absl::Now() + absl::Milliseconds(50)).status()));
  EXPECT_FALSE(ahead.ready());
  EXPECT_TRUE(clients_[1].rows->Commit(Args(1)).Wait(Deadline()).ok());
  EXPECT_TRUE(commit.Wait(Deadline()).ok());
  EXPECT_TRUE(ahead.Wait(Deadline()).ok());
  for (size_t i = 0; i < 120; ++i) EXPECT_EQ(rows_[i], before[i] - 1);
}

TEST_P(ClientTest, CommitMayFollowPushesThatAreStillOnTheirWay) {
  std::vector<float> before(120), gradients(120, 1);
  ASSERT_TRUE(Pull(clients_[0], 1, ids_, before.data()).Wait(Deadline()).ok());
  const auto push = clients_[0].rows->Push(1, 0, {{1, ids_, gradients.data()}});
  const auto commits = {clients_[0].rows->Commit(Args(1)), clients_[1].rows->Commit(Args(1))};
  for (const auto& commit : commits) EXPECT_TRUE(commit.Wait(Deadline()).ok());
  EXPECT_TRUE(push.Wait(Deadline()).ok());
  ASSERT_TRUE(Pull(clients_[0], 2, ids_, rows_.data()).Wait(Deadline()).ok());
  for (size_t i = 0; i < 120; ++i) EXPECT_EQ(rows_[i], before[i] - 1);
}

TEST_P(ClientTest, DisagreeingCommitsFailNamingBothTrainers) {
  CommitArgs other = Args(1);
  other.gradient_scale = 0.5f;
  const auto first = clients_[0].rows->Commit(Args(1)), second = clients_[1].rows->Commit(other);
  for (const auto& commit : {first, second}) {
    const absl::Status status = commit.Wait(Deadline()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_NE(status.message().find("trainer 0"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("trainer 1"), absl::string_view::npos) << status;
  }
}

TEST_P(ClientTest, AbortFailsWhatIsInFlightAndWhatComes) {
  const auto pull = Pull(clients_[0], 2, ids_, rows_.data());
  const auto commit = clients_[0].rows->Commit(Args(1));
  clients_[0].rows->Abort(absl::AbortedError("a peer is gone"));
  for (const auto& future : {pull, commit, Pull(clients_[0], 1, ids_, rows_.data()),
                             clients_[0].rows->Commit(Args(1))}) {
    const absl::Status status = future.Wait(Deadline()).status();
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_NE(status.message().find("a peer is gone"), absl::string_view::npos) << status;
  }
  EXPECT_TRUE(absl::IsAborted(clients_[0].tables->Hash().Wait(Deadline()).status()));
}

TEST_P(ClientTest, EmptyCallsComplete) {
  EXPECT_TRUE(clients_[0].rows->Pull(1, true, {}).Wait(Deadline()).ok());
  EXPECT_TRUE(clients_[0].rows->Push(1, 0, {}).Wait(Deadline()).ok());
  EXPECT_TRUE(clients_[0].rows->Pull(1, true, {{1, {}, nullptr}}).Wait(Deadline()).ok());
}

INSTANTIATE_TEST_SUITE_P(All, ClientTest,
                         testing::Values(Tables::LOCAL, Tables::REMOTE, Tables::REMOTE_ALONE),
                         [](const auto& info) {
                           return std::string(info.param == Tables::LOCAL    ? "Local"
                                              : info.param == Tables::REMOTE ? "Remote"
                                                                             : "RemoteAlone");
                         });

TEST(RemoteClientTest, PullThatIsNeverAnsweredEndsNamingTheServer) {
  PsCluster cluster(2, 1);
  const auto client = cluster.MakeClient(0, 1, {absl::Milliseconds(200), 1 << 20});
  ASSERT_TRUE(client->CreateTables(Specs(), absl::Seconds(30)).ok());
  const auto ids = MakeIds(1, 20);
  std::vector<float> rows(80);
  const absl::Status status =
      client->Pull(2, true, {{1, ids, rows.data()}}).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("pull for step 2: no answer from ps-0, ps-1"),
            absl::string_view::npos)
      << status;
}

TEST(RemoteClientTest, DeadServerIsNamedAfterTheTimeout) {
  PsCluster cluster(2, 1);
  const auto client = cluster.MakeClient(0, 1, {absl::Milliseconds(300), 1 << 20});
  ASSERT_TRUE(client->CreateTables(Specs(), absl::Seconds(30)).ok());
  cluster[1].Kill();
  const auto ids = MakeIds(1, 20);
  std::vector<float> rows(80);
  const absl::Status status =
      client->Pull(1, true, {{1, ids, rows.data()}}).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("ps-1"), absl::string_view::npos) << status;
  EXPECT_EQ(status.message().find("ps-0"), absl::string_view::npos) << status;
  const absl::Status commit = client->Commit(Args(1)).Wait(Deadline()).status();
  EXPECT_FALSE(commit.ok());
  EXPECT_NE(commit.message().find("commit of step 1: no answer from ps-1 within"),
            absl::string_view::npos)
      << commit;
}

TEST(RemoteClientTest, BrokenConnectionsAreOpenedAgainAndNothingIsLostOrDoubled) {
  PsCluster cluster(2, 1);
  const auto client = cluster.MakeClient(0, 1, {absl::Seconds(30), 64});
  ASSERT_TRUE(client->CreateTables(Specs(), absl::Seconds(30)).ok());
  const auto ids = MakeIds(1, 100);
  std::vector<float> before(400), after(400), gradients(400, 1);
  ASSERT_TRUE(client->Pull(1, true, {{1, ids, before.data()}}).Wait(Deadline()).ok());
  const auto ahead = client->Pull(2, true, {{1, ids, after.data()}});  // parked at both servers
  const auto push = client->Push(1, 0, {{1, ids, gradients.data()}});
  cluster[0].Kill();
  cluster[1].Kill();
  cluster[0].Restart();
  cluster[1].Restart();
  EXPECT_TRUE(push.Wait(Deadline()).ok()) << push.Wait(Deadline()).status();
  const auto committed = client->Commit(Args(1)).Wait(Deadline());
  EXPECT_TRUE(committed.ok()) << committed.status();
  const auto pulled = ahead.Wait(Deadline());
  EXPECT_TRUE(pulled.ok()) << pulled.status();
  for (size_t i = 0; i < 400; ++i) EXPECT_EQ(after[i], before[i] - 1);
}

TEST(RemoteClientTest, AnotherJobsServerIsRefused) {
  PsServer server(1);
  RequestHeader header;
  header.set_protocol_version(rpc::kProtocolVersion);
  header.set_job_epoch(kTestJobEpoch + 1);
  RemoteClient client({server.address()}, Router::RoundRobin(1), header, 1);
  const absl::Status status = client.CreateTables(Specs(), absl::Seconds(30));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("ps-0"), absl::string_view::npos) << status;
}

// After FailedPrecondition a client must not retry with the same map.
TEST(RemoteClientTest, AnotherShardMapOrAnotherServersIdsAreRefusedAtOnce) {
  PsCluster cluster(2, 1);
  const auto client = cluster.MakeClient(0, 1, {absl::Seconds(30), 1 << 20});
  ASSERT_TRUE(client->CreateTables(Specs(), absl::Seconds(30)).ok());
  const std::vector<uint64_t> ids = MakeIds(1, 30);
  std::vector<float> rows(120);
  const auto expect_refused = [&](RemoteClient& wrong) {
    const absl::Time begin = absl::Now();
    for (const auto& call : {wrong.Pull(0, false, {{1, ids, rows.data()}}),
                             wrong.Push(1, 0, {{1, ids, rows.data()}})}) {
      const absl::Status status = call.Wait(Deadline()).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
      EXPECT_NE(status.message().find("not the owner, map version 1"), absl::string_view::npos)
          << status;
    }
    EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  };
  RequestHeader header;
  header.set_protocol_version(rpc::kProtocolVersion);
  header.set_job_epoch(kTestJobEpoch);
  header.set_generation(1);
  header.set_shard_map_version(kTestMapVersion);
  header.mutable_sender()->set_role(TRAINER);
  header.mutable_sender()->set_incarnation(1);
  // Each server is taken for the other one.
  RemoteClient swapped({cluster[1].address(), cluster[0].address()}, Router::RoundRobin(2), header,
                       1);
  ASSERT_TRUE(swapped.CreateTables(Specs(), absl::Seconds(30)).ok());
  expect_refused(swapped);
  header.set_shard_map_version(kTestMapVersion + 98);
  RemoteClient stale({cluster[0].address(), cluster[1].address()}, Router::RoundRobin(2), header,
                     1);
  EXPECT_TRUE(absl::IsFailedPrecondition(stale.CreateTables(Specs(), absl::Seconds(30))));
}

TEST(RemoteClientTest, CallsOfMoreSegmentsThanAMessageHoldsAreCut) {
  PsCluster cluster(1, 1);
  const auto client = cluster.MakeClient(0, 1, {absl::Seconds(30), 1 << 20});
  ASSERT_TRUE(client->CreateTables(Specs(), absl::Seconds(30)).ok());
  const size_t count = 2 * kMaxSegments + 5;
  const std::vector<uint64_t> ids = MakeIds(1, count);
  std::vector<float> before(4 * count), after(4 * count), gradients(4 * count, 1);
  std::vector<PullSegment> pulls, pulls_after;
  std::vector<PushSegment> pushes;
  for (size_t i = 0; i < count; ++i) {
    const absl::Span<const uint64_t> id(&ids[i], 1);
    pulls.push_back({1, id, &before[4 * i]});
    pulls_after.push_back({1, id, &after[4 * i]});
    pushes.push_back({1, id, &gradients[4 * i]});
  }
  ASSERT_TRUE(client->Pull(1, true, pulls).Wait(Deadline()).ok());
  client->Push(1, 0, pushes);
  const auto committed = client->Commit(Args(1)).Wait(Deadline());
  ASSERT_TRUE(committed.ok()) << committed.status();
  ASSERT_TRUE(client->Pull(2, true, pulls_after).Wait(Deadline()).ok());
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], before[i] - 1) << i;
}

TEST(RemoteClientTest, CreateTablesWaitsForAServerThatStartsLate) {
  PsCluster cluster(1, 1);
  cluster[0].Kill();
  const auto client = cluster.MakeClient(0, 1, {absl::Seconds(30), 1 << 20});
  std::thread late([&] { cluster[0].Restart(); });
  EXPECT_TRUE(client->CreateTables(Specs(), absl::Seconds(30)).ok());
  late.join();
}

TEST(RemoteClientTest, DestructionCompletesWhatIsInFlight) {
  PsCluster cluster(2, 1);
  auto client = cluster.MakeClient(0, 1, {absl::Seconds(30), 64});
  ASSERT_TRUE(client->CreateTables(Specs(), absl::Seconds(30)).ok());
  const auto ids = MakeIds(1, 20);
  std::vector<float> rows(80);
  const auto pull = client->Pull(2, true, {{1, ids, rows.data()}});
  client.reset();
  ASSERT_TRUE(pull.ready());
  EXPECT_TRUE(absl::IsCancelled(pull.Wait(Deadline()).status()));
}

// In PERMIT pushes go on while commits are under way. Another thread may just be acknowledging the
// pushes of an earlier commit.
// A later commit, whose pushes are already acknowledged, must not overtake the earlier one.
TEST(RemoteClientTest, CommitsUnderWayArriveInTheirOrder) {
  constexpr uint64_t kSteps = 2000, kUnderWay = 4;
  for (const auto& [shared_memory, num_servers] :
       {std::pair(false, 2), std::pair(true, 2), std::pair(false, 1), std::pair(true, 1)}) {
    SCOPED_TRACE(absl::StrCat(num_servers, shared_memory ? " servers, shared memory" : " servers"));
    PsCluster cluster(static_cast<size_t>(num_servers), 1);
    RemoteClientOptions options{
        .timeout = absl::Seconds(30), .message_bytes = 512, .shared_memory = shared_memory};
    options.consistency.set_mode(ConsistencySpec::PERMIT);
    options.consistency.set_staleness(kUnderWay);
    const auto client = cluster.MakeClient(0, 1, options);
    TableSpec spec = MakeTableSpec(1, 4);
    spec.set_init_stddev(0);
    ASSERT_TRUE(client->CreateTables({spec}, absl::Seconds(30)).ok());
    const std::vector<uint64_t> ids = MakeIds(1, 100);
    const std::vector<float> gradients(400, 1);
    std::deque<rpc::Future<rpc::Done>> commits;
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const auto few = absl::MakeConstSpan(ids).first(
          step % 3 == 0 ? 1 : 100);  // acknowledged earlier than the others
      client->Push(step, 0, {{1, few, gradients.data()}});
      commits.push_back(client->Commit(Args(step)));
      if (commits.size() < kUnderWay) continue;
      const auto committed = commits.front().Wait(Deadline());
      ASSERT_TRUE(committed.ok()) << committed.status();
      commits.pop_front();
    }
    for (const auto& commit : commits) ASSERT_TRUE(commit.Wait(Deadline()).ok());
    std::vector<float> rows(400);
    ASSERT_TRUE(client->Pull(0, false, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
    for (size_t i = 0; i < 400; ++i)
      EXPECT_EQ(rows[i], -static_cast<float>(i < 4 ? kSteps : kSteps - kSteps / 3));
  }
}

}  // namespace
}  // namespace tandem::ps
