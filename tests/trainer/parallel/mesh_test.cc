#include "trainer/parallel/mesh.h"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>

#include "trainer/comm/host/thread_group.h"

namespace tandem::parallel {
namespace {

using Members = std::vector<std::vector<int>>;

struct Case {
  MeshShape shape;
  Members tp, dp;   // the groups of each axis, by their smallest rank
  Members pp = {};  // empty: no pipeline
};

// Written by hand.
const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      {{.tp = 1, .dp = 1}, {{0}}, {{0}}},
      {{.tp = 1, .dp = 2}, {{0}, {1}}, {{0, 1}}},
      {{.tp = 2, .dp = 1}, {{0, 1}}, {{0}, {1}}},
      {{.tp = 1, .dp = 3}, {{0}, {1}, {2}}, {{0, 1, 2}}},
      {{.tp = 3, .dp = 1}, {{0, 1, 2}}, {{0}, {1}, {2}}},
      {{.tp = 2, .dp = 2}, {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}},
      {{.tp = 4, .dp = 1}, {{0, 1, 2, 3}}, {{0}, {1}, {2}, {3}}},
      {{.tp = 1, .dp = 4}, {{0}, {1}, {2}, {3}}, {{0, 1, 2, 3}}},
      {{.tp = 2, .dp = 3}, {{0, 1}, {2, 3}, {4, 5}}, {{0, 2, 4}, {1, 3, 5}}},
      {{.tp = 3, .dp = 2}, {{0, 1, 2}, {3, 4, 5}}, {{0, 3}, {1, 4}, {2, 5}}},
      {{.tp = 2, .dp = 4}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}, {{0, 2, 4, 6}, {1, 3, 5, 7}}},
      {{.tp = 4, .dp = 2}, {{0, 1, 2, 3}, {4, 5, 6, 7}}, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {{.tp = 8, .dp = 1}, {{0, 1, 2, 3, 4, 5, 6, 7}}, {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
      {{.tp = 1, .dp = 1, .pp = 3}, {{0}, {1}, {2}}, {{0}, {1}, {2}}, {{0, 1, 2}}},
      {{.tp = 2, .dp = 1, .pp = 2}, {{0, 1}, {2, 3}}, {{0}, {1}, {2}, {3}}, {{0, 2}, {1, 3}}},
      {{.tp = 1, .dp = 2, .pp = 2}, {{0}, {1}, {2}, {3}}, {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}},
      {{.tp = 2, .dp = 1, .pp = 3},
       {{0, 1}, {2, 3}, {4, 5}},
       {{0}, {1}, {2}, {3}, {4}, {5}},
       {{0, 2, 4}, {1, 3, 5}}},
      {{.tp = 2, .dp = 2, .pp = 2},
       {{0, 1}, {2, 3}, {4, 5}, {6, 7}},
       {{0, 2}, {1, 3}, {4, 6}, {5, 7}},
       {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
  };
  return *cases;
}

// The group of `members` that has `rank`.
const std::vector<int>& GroupOf(const Members& groups, int rank) {
  for (const std::vector<int>& group : groups) {
    if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
  }
  ADD_FAILURE() << "no group has rank " << rank;
  return groups[0];
}

// Returns the world ranks of a group, in its order.
std::vector<int> RanksIn(comm::ProcessGroup& group, int world_rank) {
  std::vector<int64_t> ranks(static_cast<size_t>(group.size()));
  const int64_t mine = world_rank;
  EXPECT_TRUE(group
                  .Await(group.AllGather(DenseView(ranks.data(), Shape{group.size()}),
                                         DenseView(&mine, Shape{1}), {}),
                         absl::Now() + absl::Seconds(20))
                  .ok());
  return {ranks.begin(), ranks.end()};
}

TEST(MeshTest, GroupsOfEveryAxisHaveTheMembersOfTheTable) {
  for (Case c : Cases()) {
    for (int rank = 0; c.shape.pp == 1 && rank < c.shape.size(); ++rank) c.pp.push_back({rank});
    const int size = c.shape.size();
    const auto worlds = comm::ThreadGroup::Create(size, "trainers");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto mesh =
            Mesh::Create(c.shape, worlds[rank].get(), Device{}, absl::Now() + absl::Seconds(20));
        ASSERT_TRUE(mesh.ok()) << mesh.status();
        for (const auto& [axis, groups, group] : {std::tuple(Axis::TP, &c.tp, &(*mesh)->tp()),
                                                  std::tuple(Axis::DP, &c.dp, &(*mesh)->dp()),
                                                  std::tuple(Axis::PP, &c.pp, &(*mesh)->pp())}) {
          const std::vector<int>& wanted = GroupOf(*groups, rank);
          EXPECT_EQ(MembersOf(axis, c.shape, rank), wanted);
          EXPECT_EQ(RanksIn(*group, rank), wanted);
          EXPECT_EQ(wanted[static_cast<size_t>(PlaceOn(axis, c.shape, rank))], rank);
          EXPECT_EQ(group->rank(), PlaceOn(axis, c.shape, rank));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(MeshTest, AFailureOfTheWorldFailsTheGroupsOfAllAxes) {
  const MeshShape shape{.tp = 2, .dp = 2};
  const auto worlds = comm::ThreadGroup::Create(shape.size(), "trainers");
  std::atomic<bool> trainer_0_ended{false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const absl::Time deadline = absl::Now() + absl::Seconds(20);
      const auto mesh = Mesh::Create(shape, worlds[rank].get(), Device{}, deadline);
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      // Ranks wait on different axes for peers that never come.
      comm::ProcessGroup& waits = rank % 2 == 0 ? (*mesh)->tp() : (*mesh)->dp();
      if (rank == 3) {
        worlds[3]->Abort(absl::UnavailableError("trainer-3 is lost"));
      } else {
        const comm::Work work = waits.Barrier({});
        if (rank == 0) {
          // Only the master knows that trainer-0, which waits for trainer-1, is to end.
          worlds[0]->Abort(absl::UnavailableError("trainer-3 is lost"));
          trainer_0_ended = true;
        }
        EXPECT_EQ(waits.Await(work, deadline).code(), absl::StatusCode::kUnavailable);
      }
      while (!trainer_0_ended) std::this_thread::yield();  // else trainer-1 would join its barrier
      EXPECT_FALSE((*mesh)->tp().Await((*mesh)->tp().Barrier({}), deadline).ok());
      if (rank % 2 == 1) {
        EXPECT_FALSE((*mesh)->dp().Await((*mesh)->dp().Barrier({}), deadline).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem::parallel
