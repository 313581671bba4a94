#include "rpc/master/rendezvous.h"

#include <gtest/gtest.h>
#include <limits>
#include <string>

namespace tandem::rpc {
namespace {

TEST(RendezvousTest, SetAnswersEveryCallThatWaitsForTheKey) {
  Rendezvous store;
  EXPECT_TRUE(store.Get(1, "key", 10).empty());
  EXPECT_TRUE(store.Get(2, "key", 10).empty());
  EXPECT_TRUE(store.Get(3, "other", 10).empty());
  const auto answers = *store.Set("key", "value");
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].call, 1u);
  EXPECT_EQ(answers[1].value, "value");
  EXPECT_TRUE(store.Set("key", "new")->empty());
  EXPECT_EQ(store.Get(4, "key", 0).at(0).value, "new");
}

TEST(RendezvousTest, AddAnswersTheCallsWhoseValueIsReached) {
  Rendezvous store;
  int64_t sum = 0;
  EXPECT_EQ(store.WaitCounter(1, "n", 0, 10).size(), 1u);  // an absent counter is 0
  EXPECT_TRUE(store.WaitCounter(2, "n", 2, 10).empty());
  EXPECT_TRUE(store.WaitCounter(3, "n", 3, 10).empty());
  EXPECT_TRUE(store.Add("n", 1, &sum)->empty());
  EXPECT_EQ(store.Add("n", 1, &sum)->at(0).call, 2u);
  EXPECT_EQ(sum, 2);
  EXPECT_EQ(store.Add("n", 5, &sum)->at(0).call, 3u);
  EXPECT_EQ(sum, 7);
  EXPECT_TRUE(store.FailAll(absl::InternalError("x")).empty());
}

TEST(RendezvousTest, WaitsExpireAtTheirDeadlineAndFailWithTheJob) {
  Rendezvous store;
  store.Get(1, "a", 10);
  store.Get(2, "a", 20);
  store.WaitCounter(3, "b", 1, 10);
  EXPECT_TRUE(store.Expire(9.9).empty());
  const auto expired = store.Expire(10);
  ASSERT_EQ(expired.size(), 2u);
  for (const auto& answer : expired) EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status));
  const auto failed = store.FailAll(absl::DataLossError("job"));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].call, 2u);
  EXPECT_EQ(failed[0].status, absl::DataLossError("job"));
  EXPECT_TRUE(store.Set("a", "late")->empty());
}

TEST(RendezvousTest, RefusesMoreCallsThatWaitThanItMayHold) {
  Rendezvous store;
  uint64_t call = 0;
  while (call < Rendezvous::kMaxWaiting) {
    ASSERT_TRUE(store.Get(++call, "a", 10).empty());
    ASSERT_TRUE(store.WaitCounter(++call, "n", 1, 20).empty());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(store.Get(++call, "a", 10).at(0).status));
  EXPECT_TRUE(absl::IsResourceExhausted(store.WaitCounter(++call, "n", 1, 10).at(0).status));
  EXPECT_TRUE(absl::IsInvalidArgument(
      store.Get(++call, std::string(kMaxStoreKeyBytes + 1, 'k'), 10).at(0).status));
  EXPECT_EQ(store.Expire(10).size(), Rendezvous::kMaxWaiting / 2);
  EXPECT_TRUE(store.Get(++call, "a", 10).empty()) << "those that are answered wait no more";
  int64_t sum = 0;
  EXPECT_EQ(store.Add("n", 1, &sum)->size(), Rendezvous::kMaxWaiting / 2);
  EXPECT_EQ(store.FailAll(absl::InternalError("x")).size(), 1u);
}

TEST(RendezvousTest, WhatTheStoreRefusesAnswersNobody) {
  Rendezvous store;
  EXPECT_TRUE(store.Get(1, "a", 10).empty());
  EXPECT_FALSE(store.Set("a", std::string(kMaxStoreValueBytes + 1, 'v')).ok());
  int64_t sum = 0;
  ASSERT_TRUE(store.Add("n", std::numeric_limits<int64_t>::min(), &sum).ok());
  EXPECT_FALSE(store.Add("n", -1, &sum).ok());
  EXPECT_EQ(store.FailAll(absl::InternalError("x")).size(), 1u);
}

}  // namespace
}  // namespace tandem::rpc
