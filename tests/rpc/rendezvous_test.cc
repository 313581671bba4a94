#include "rpc/master/rendezvous.h"

#include <gtest/gtest.h>

namespace tandem::rpc {
namespace {

TEST(RendezvousTest, SetAnswersEveryCallThatWaitsForTheKey) {
  Rendezvous store;
  EXPECT_TRUE(store.Get(1, "key", 10).empty());
  EXPECT_TRUE(store.Get(2, "key", 10).empty());
  EXPECT_TRUE(store.Get(3, "other", 10).empty());
  const auto answers = store.Set("key", "value");
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].call, 1u);
  EXPECT_EQ(answers[1].value, "value");
  EXPECT_TRUE(store.Set("key", "new").empty());
  EXPECT_EQ(store.Get(4, "key", 0).at(0).value, "new");
}

TEST(RendezvousTest, AddAnswersTheCallsWhoseValueIsReached) {
  Rendezvous store;
  int64_t sum = 0;
  EXPECT_EQ(store.WaitCounter(1, "n", 0, 10).size(), 1u);  // an absent counter is 0
  EXPECT_TRUE(store.WaitCounter(2, "n", 2, 10).empty());
  EXPECT_TRUE(store.WaitCounter(3, "n", 3, 10).empty());
  EXPECT_TRUE(store.Add("n", 1, &sum).empty());
  EXPECT_EQ(store.Add("n", 1, &sum).at(0).call, 2u);
  EXPECT_EQ(sum, 2);
  EXPECT_EQ(store.Add("n", 5, &sum).at(0).call, 3u);
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
  EXPECT_TRUE(store.Set("a", "late").empty());
}

}  // namespace
}  // namespace tandem::rpc
