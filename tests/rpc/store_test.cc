#include "rpc/store/store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tandem::rpc {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(10); }
absl::Time Passed() { return absl::Now() - absl::Seconds(1); }

TEST(MemoryStoreTest, GetReturnsTheLastValueSet) {
  MemoryStore store;
  ASSERT_TRUE(store.Set("key", "one").ok());
  ASSERT_TRUE(store.Set("key", std::string("t\0o", 3)).ok());
  EXPECT_EQ(*store.Get("key", Passed()), std::string("t\0o", 3));
}

TEST(MemoryStoreTest, GetWaitsForAnotherThread) {
  MemoryStore store;
  std::thread setter([&] { ASSERT_TRUE(store.Set("late", "value").ok()); });
  EXPECT_EQ(*store.Get("late", Soon()), "value");
  setter.join();
}

TEST(MemoryStoreTest, GetOfAnAbsentKeyEndsAtTheDeadlineAndNamesIt) {
  MemoryStore store;
  const auto value = store.Get("nobody", Passed());
  EXPECT_TRUE(absl::IsDeadlineExceeded(value.status()));
  EXPECT_NE(value.status().ToString().find("nobody"), std::string::npos);
}

TEST(MemoryStoreTest, CounterOfManyThreadsIsTheirSum) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int i = 1; i <= 7; ++i) threads.emplace_back([&store, i] { ASSERT_TRUE(store.Add("sum", i).ok()); });
  EXPECT_TRUE(store.Wait("sum", 28, Soon()).ok());
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(*store.Add("sum", 0), 28);
  EXPECT_TRUE(absl::IsDeadlineExceeded(store.Wait("sum", 29, Passed())));
}

}  // namespace
}  // namespace tandem::rpc
