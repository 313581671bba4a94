#include "rpc/store/store.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

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
  for (int i = 1; i <= 7; ++i)
    threads.emplace_back([&store, i] { ASSERT_TRUE(store.Add("sum", i).ok()); });
  EXPECT_TRUE(store.Wait("sum", 28, Soon()).ok());
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(*store.Add("sum", 0), 28);
  EXPECT_TRUE(absl::IsDeadlineExceeded(store.Wait("sum", 29, Passed())));
}

TEST(StoreContentsTest, ValuesAndKeysAboveTheirLimitAreRefused) {
  StoreContents store;
  EXPECT_TRUE(store.Set("key", std::string(kMaxStoreValueBytes, 'v')).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(store.Set("key", std::string(kMaxStoreValueBytes + 1, 'v'))));
  EXPECT_EQ(store.Find("key")->size(), kMaxStoreValueBytes);
  const std::string long_key(kMaxStoreKeyBytes + 1, 'k');
  EXPECT_TRUE(absl::IsInvalidArgument(store.Set(long_key, "")));
  EXPECT_TRUE(absl::IsInvalidArgument(store.Add(long_key, 1).status()));
}

TEST(StoreContentsTest, TakesNoMoreKeysAndBytesThanItMay) {
  StoreContents keys;
  for (size_t i = 0; i < kMaxStoreKeys; ++i) {
    ASSERT_TRUE(i % 2 == 0 ? keys.Set(std::to_string(i), "").ok()
                           : keys.Add(std::to_string(i), 1).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(keys.Set("one more", "")));
  EXPECT_TRUE(absl::IsResourceExhausted(keys.Add("one more", 1).status()));
  EXPECT_TRUE(keys.Set("0", "new").ok()) << "a key that is there";
  EXPECT_EQ(*keys.Add("1", 1), 2);

  StoreContents bytes;
  const std::string value(kMaxStoreValueBytes, 'v');
  size_t held = 0;
  for (; bytes.Set(absl::StrCat(held), value).ok(); ++held)
    ASSERT_LE(held * value.size(), kMaxStoreBytes);
  EXPECT_GE((held + 1) * value.size() + 4 * held, kMaxStoreBytes);
  EXPECT_TRUE(absl::IsResourceExhausted(bytes.Set("one more", value)));
  ASSERT_TRUE(bytes.Set("0", "").ok());
  EXPECT_TRUE(bytes.Set("one more", std::string(value.size() - 8, 'v')).ok())
      << "a shorter value makes room";
}

TEST(StoreContentsTest, ACounterDoesNotWrap) {
  StoreContents store;
  const int64_t most = std::numeric_limits<int64_t>::max();
  ASSERT_TRUE(store.Add("up", most).ok());
  ASSERT_TRUE(store.Add("down", -most).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(store.Add("up", 1).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store.Add("down", -2).status()));
  EXPECT_EQ(store.Counter("up"), most);
  EXPECT_EQ(store.Counter("down"), -most);
}

}  // namespace
}  // namespace tandem::rpc
