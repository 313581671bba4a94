// The replicas' vote on an early stop.
#include "trainer/loop/replica/stop_vote.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "trainer/comm/host/thread_group.h"

namespace tandem::loop {
namespace {

TEST(StopVoteTest, OneVoteStopsAllReplicas) {
  constexpr int kReplicas = 3;
  for (int voter = -1; voter < kReplicas; ++voter) {  // -1: nobody
    const auto groups = comm::ThreadGroup::Create(kReplicas, "dp");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kReplicas; ++rank) {
      threads.emplace_back([&, rank] {
        ThreadPool pool(1);
        Stream stream(&pool);
        StopVote vote([&] { return rank == voter; }, groups[static_cast<size_t>(rank)].get(),
                      &stream);
        const auto agreed = vote.Agree(absl::Now() + absl::Seconds(20));
        ASSERT_TRUE(agreed.ok()) << agreed.status();
        EXPECT_EQ(*agreed, voter >= 0);
        EXPECT_EQ(vote.stopping(), voter >= 0);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(StopVoteTest, WhoMayNotBeAskedNeverVotes) {
  StopVote vote(nullptr, nullptr, nullptr);
  EXPECT_EQ(vote.Cast(), 0);
  EXPECT_FALSE(vote.stopping());
  vote.Count(2);
  EXPECT_TRUE(vote.stopping());
}

}  // namespace
}  // namespace tandem::loop
