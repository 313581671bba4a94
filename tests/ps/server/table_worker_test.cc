// A worker's mailbox: tasks run one at a time, in order, on the worker's thread.
#include "ps/server/table_worker.h"

#include <map>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

TEST(TableWorkerTest, WhatATaskPostsRunsAfterIt) {
  TableWorker worker(0, 1);
  absl::Notification done;
  std::vector<int> order;
  worker.Post([&] {
    worker.Post([&] {
      order.push_back(2);
      done.Notify();
    });
    order.push_back(1);
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(TableWorkerTest, DestructionRunsWhatIsInTheMailbox) {
  absl::Notification begun, go_on;
  std::vector<int> order;
  std::thread releases;
  {
    TableWorker worker(0, 1);
    worker.Post([&] {
      begun.Notify();
      EXPECT_TRUE(go_on.WaitForNotificationWithTimeout(absl::Seconds(20)));
      order.push_back(1);
    });
    // Else the worker would take both tasks at once.
    ASSERT_TRUE(begun.WaitForNotificationWithTimeout(absl::Seconds(20)));
    worker.Post([&] { order.push_back(2); });
    releases = std::thread([&] { go_on.Notify(); });
  }
  releases.join();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// Needs no lock: one thread runs the tasks.
TEST(TableWorkerTest, ManyPostersKeepTheirOrders) {
  constexpr int kPosters = 4, kTasks = 2000;
  std::map<int, std::vector<int>> ran;
  {
    TableWorker worker(0, 1);
    std::vector<std::thread> posters;
    for (int poster = 0; poster < kPosters; ++poster) {
      posters.emplace_back([&, poster] {
        for (int i = 0; i < kTasks; ++i)
          worker.Post([&ran, poster, i] { ran[poster].push_back(i); });
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  std::vector<int> all(kTasks);
  for (int i = 0; i < kTasks; ++i) all[static_cast<size_t>(i)] = i;
  for (int poster = 0; poster < kPosters; ++poster)
    EXPECT_EQ(ran[poster], all) << "poster " << poster;
}

}  // namespace
}  // namespace tandem::ps
