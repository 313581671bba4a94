#include "rpc/retry.h"

#include <gtest/gtest.h>

namespace tandem::rpc {
namespace {

TEST(RetryTest, OnlyUnavailableIsRetried) {
  EXPECT_TRUE(IsRetryable(absl::UnavailableError("")));
  EXPECT_FALSE(IsRetryable(absl::OkStatus()));
  EXPECT_FALSE(IsRetryable(absl::DeadlineExceededError("")));
  EXPECT_FALSE(IsRetryable(absl::FailedPreconditionError("")));
}

TEST(RetryTest, DelayDoublesUpToItsLimitAndJitters) {
  for (int attempt : {0, 1, 5, 6, 100, 1 << 30}) {
    const absl::Duration longest =
        std::min(absl::Milliseconds(50) * (1 << std::min(attempt, 10)), absl::Seconds(2));
    EXPECT_EQ(BackoffDelay(attempt, 0), longest / 2) << attempt;
    EXPECT_LE(BackoffDelay(attempt, 0xffffffffu), longest) << attempt;
    EXPECT_GT(BackoffDelay(attempt, 0xffffffffu), longest * 0.99) << attempt;
  }
}

}  // namespace
}  // namespace tandem::rpc
