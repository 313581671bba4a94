// Promises of groups over TCP: who may join, what a lost process looks like, and when ranks share
// memory instead.
#include "trainer/comm/net/tcp_group.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/status_macros.h"
#include "tests/conformance/file_store.h"
#include "tests/conformance/group_harness.h"
#include "trainer/comm/host/cpu_group.h"
#include "trainer/comm/net/trainers_group.h"

namespace tandem::comm {
namespace {

bool Says(const absl::Status& status, const std::string& text) {
  return absl::StrContains(std::string(status.message()), text);
}

// True if the peer ends the connection.
bool IsSentAway(const Socket& socket) {
  char byte = 0;
  size_t read = 0;
  return socket.AwaitReadable(Soon()) && socket.Receive(&byte, 1, &read) == Socket::Moved::CLOSED;
}

TEST(EndpointTest, StrangersAreSentAwayAndDisturbNobody) {
  const auto endpoint = Endpoint::Open("127.0.0.1:0", "", "secret");
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto stranger = Endpoint::Open("127.0.0.1:0", "", "guess!");
  ASSERT_TRUE(stranger.ok()) << stranger.status();
  const std::string& address = (*endpoint)->address();
  auto silent = Socket::Connect(address, Soon()), loud = Socket::Connect(address, Soon());
  ASSERT_TRUE(silent.ok() && loud.ok());
  const std::string garbage(100, 'x');
  size_t sent = 0;
  loud->Send(garbage.data(), garbage.size(), &sent);
  EXPECT_TRUE(IsSentAway(*loud));
  const absl::Status refused =
      (*stranger)->Call(address, {"group", 1, Channel::CONTROL}, Soon()).status();
  EXPECT_TRUE(Says(refused, absl::StrCat(address, " refused to join group 'group'"))) << refused;
  // A friend is served while a silent guest waits.
  const auto friend_of = Endpoint::Open("127.0.0.1:0", "", "secret");
  ASSERT_TRUE(friend_of.ok());
  const Caller caller{"group", 1, Channel::CONTROL};
  const auto called = (*friend_of)->Call(address, caller, Soon());
  ASSERT_TRUE(called.ok()) << called.status();
  EXPECT_TRUE((*endpoint)->Take(caller, Soon()).ok());
  const absl::Status missing =
      (*endpoint)
          ->Take({"group", 2, Channel::CONTROL}, absl::Now() + absl::Milliseconds(50))
          .status();
  EXPECT_EQ(missing, absl::DeadlineExceededError("rank 2 did not join group 'group'"));
}

TEST(EndpointTest, AnAddressInUseIsNamed) {
  const auto first = Endpoint::Open("127.0.0.1:0", "", "secret");
  ASSERT_TRUE(first.ok());
  const absl::Status second = Endpoint::Open((*first)->address(), "", "secret").status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_TRUE(Says(second, (*first)->address())) << second;
}

// Rank 1 dies in the middle of back-to-back all-reduces of `count` elements.
void CheckKilledRank(int64_t count) {
  FileStore store;
  const std::string token = NewToken();
  std::vector<pid_t> children;
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      auto endpoint = Endpoint::Open("127.0.0.1:0", "", token);
      if (!endpoint.ok()) _exit(9);
      auto group =
          TcpGroup::Create({.store = &store,
                            .endpoint = *std::move(endpoint),
                            .name = "world",
                            .rank = rank,
                            .size = 3,
                            .names = {"host a, rank 0", "host b, rank 1", "host c, rank 2"}},
                           "", Soon());
      if (!group.ok()) _exit(8);
      std::vector<float> values(count, 1);
      for (int round = 0; round < 1000; ++round) {
        const Work work =
            (*group)->AllReduce(DenseView(values.data(), {count}), Args(ReduceOp::MAX));
        if (rank == 1 && round == 20) kill(getpid(), SIGKILL);
        const absl::Status status = work.Wait(Soon());
        if (status.ok()) continue;
        const bool names = Says(status, "host b, rank 1 is gone");
        _exit(absl::IsUnavailable(status) && names ? 0 : 1);
      }
      _exit(2);
    }
    children.push_back(child);
  }
  std::vector<int> statuses(3);
  for (int rank = 0; rank < 3; ++rank) waitpid(children[rank], &statuses[rank], 0);
  EXPECT_EQ(WTERMSIG(statuses[1]), SIGKILL);
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[2], 0);
}

TEST(TcpGroupTest, SurvivorsOfAKilledRankNameItAndItsHost) { CheckKilledRank(100); }
TEST(TcpGroupTest, SurvivorsOfARankKilledInALargeSumNameItAndItsHost) { CheckKilledRank(500000); }

bool IsOverTcp(const ProcessGroup& group) {
  return dynamic_cast<const TcpGroup*>(&group) != nullptr;
}

TEST(TrainersGroupTest, RanksShareMemoryWithinAHostAndUseTcpBetweenHosts) {
  for (const auto& [hosts, memory] :
       std::vector<std::pair<std::vector<std::string>, std::vector<int>>>{
           {{"a", "a", "b", "b"}, {0, 0, 2, 2}},
           {{"a", "b", "a", "b"}, {0, 1, 0, 1}},
           {{"a", "a", "a", "a"}, {0, 0, 0, 0}}}) {
    rpc::MemoryStore store;
    const std::string token = NewToken();
    std::vector<TrainersGroup> made(4);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        auto group = MakeTrainersGroup({.store = &store,
                                        .token = token,
                                        .name = "trainers",
                                        .rank = rank,
                                        .hosts = hosts,
                                        .listen = "127.0.0.1:0"},
                                       Soon());
        ASSERT_TRUE(group.ok()) << group.status();
        made[rank] = *std::move(group);
        EXPECT_EQ(made[rank].memory, memory);
        ProcessGroup& world = *made[rank].group;
        const bool apart = memory[2] != 0 || memory[1] != 0;
        EXPECT_EQ(IsOverTcp(world), apart);
        // Ranks of one host, and one rank of each.
        auto within = world.Split(memory[rank], rank, "within", Soon());
        ASSERT_TRUE(within.ok()) << within.status();
        EXPECT_FALSE(IsOverTcp(**within));
        const int place = memory[rank] == 0 && !apart ? rank / 2 : (*within)->rank();
        auto across = world.Split(place, rank, "across", Soon());
        ASSERT_TRUE(across.ok()) << across.status();
        EXPECT_EQ(IsOverTcp(**across), apart);
        for (ProcessGroup* group : {&world, within->get(), across->get()}) {
          double sum = 1 << rank;
          ASSERT_TRUE(group->AllReduce(DenseView(&sum, {1}), Args()).Wait(Soon()).ok());
          EXPECT_GT(sum, 1 << rank);
          if (group == &world) {
            EXPECT_EQ(sum, 15);
          }
        }
        across->reset();
        within->reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace tandem::comm
