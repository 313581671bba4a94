// A worker's mailbox: tasks run one at a time, in order. They run on the worker's thread or, if
// short while the worker is idle, on the poster's.
#include "ps/server/table_worker.h"

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

// Posts a task with RunPosted. Returns the thread that ran it.
std::thread::id RunShort(TableWorker& worker) {
  const auto ran_on = std::make_shared<std::thread::id>();
  const auto done = std::make_shared<absl::Notification>();
  worker.PostQuietly([ran_on, done] {
    *ran_on = std::this_thread::get_id();
    done->Notify();
  });
  worker.RunPosted();
  EXPECT_TRUE(done->WaitForNotificationWithTimeout(absl::Seconds(20)));
  return *ran_on;
}

TEST(TableWorkerTest, AnIdleWorkersShortTaskRunsOnItsPostersThread) {
  TableWorker worker(0, 1);
  EXPECT_EQ(RunShort(worker), std::this_thread::get_id());
  EXPECT_EQ(RunShort(worker), std::this_thread::get_id());
}

TEST(TableWorkerTest, APostRunsOnTheWorkersThread) {
  TableWorker worker(0, 1);
  absl::Notification done;
  std::thread::id ran_on;
  worker.Post([&] {
    ran_on = std::this_thread::get_id();
    done.Notify();
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

TEST(TableWorkerTest, BehindOthersAShortTaskWaitsForTheWorkersThread) {
  TableWorker worker(0, 1);
  absl::Notification started, go_on, done;
  std::vector<int> order;
  std::thread::id ran_on;
  worker.Post([&] {
    started.Notify();
    EXPECT_TRUE(go_on.WaitForNotificationWithTimeout(absl::Seconds(20)));
    order.push_back(1);
  });
  ASSERT_TRUE(started.WaitForNotificationWithTimeout(absl::Seconds(20)));
  worker.PostQuietly([&] {
    order.push_back(2);
    ran_on = std::this_thread::get_id();
    done.Notify();
  });
  worker.RunPosted();  // returns, though the first task does not
  EXPECT_FALSE(done.HasBeenNotified());
  go_on.Notify();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_NE(ran_on, std::this_thread::get_id());
}

// A thread that runs a task may post another task, which must neither run inside the first nor be
// forgotten.
TEST(TableWorkerTest, WhatATaskPostsRunsAfterIt) {
  TableWorker worker(0, 1);
  absl::Notification done;
  std::vector<int> order;
  worker.PostQuietly([&] {
    worker.PostQuietly([&] {
      order.push_back(2);
      done.Notify();
    });
    worker.RunPosted();
    order.push_back(1);
  });
  worker.RunPosted();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// A task may be answered, and all its waiters gone, before its poster calls RunPosted.
TEST(TableWorkerTest, DestructionWaitsForWhoeverHasPostedQuietly) {
  auto worker = std::make_unique<TableWorker>(0, 1);
  TableWorker& still_there = *worker;
  absl::Notification ran;
  std::atomic<bool> destroyed{false};
  still_there.PostQuietly([&] { ran.Notify(); });
  still_there.Post([] {});  // wakes the thread, which runs both
  ASSERT_TRUE(ran.WaitForNotificationWithTimeout(absl::Seconds(20)));
  std::thread destroyer([&] {
    worker = nullptr;
    destroyed = true;
  });
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_FALSE(destroyed);
  still_there.RunPosted();
  destroyer.join();
}

// Needs no lock: one thread at a time runs tasks, whichever thread that is.
TEST(TableWorkerTest, ManyPostersKeepTheirOrders) {
  constexpr int kPosters = 4, kTasks = 2000;
  std::map<int, std::vector<int>> ran;
  {
    TableWorker worker(0, 1);
    std::vector<std::thread> posters;
    for (int poster = 0; poster < kPosters; ++poster) {
      posters.emplace_back([&, poster] {
        for (int i = 0; i < kTasks; ++i) {
          const auto task = [&ran, poster, i] { ran[poster].push_back(i); };
          if ((i + poster) % 3 == 0) {
            worker.Post(task);
          } else {
            worker.PostQuietly(task);
            worker.RunPosted();
          }
        }
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
