#include "rpc/resolve.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "rpc/address.h"

namespace tandem::rpc {
namespace {

// RFC 2606 promises that nobody ever has this name.
constexpr char kNobody[] = "nobody.invalid:7";

TEST(ResolveTest, ANameWithoutAnAddressIsNamedWithTheResolversWords) {
  EXPECT_TRUE(Resolve("localhost:7", SOCK_STREAM).ok());
  const absl::Status nobody = Resolve(kNobody, SOCK_STREAM).status();
  EXPECT_TRUE(absl::IsUnavailable(nobody));
  EXPECT_TRUE(absl::StartsWith(nobody.message(), "no host nobody.invalid: ")) << nobody;
}

TEST(ResolveTest, ANameThatNeverGetsAnAddressEndsTheWaitAtItsDeadline) {
  const absl::Time began = absl::Now();
  std::vector<std::string> told;
  const absl::Status status =
      AwaitAddress(kNobody, began + absl::Milliseconds(700), [&](const std::string& why) {
        told.push_back(why);
        return absl::OkStatus();
      });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_GE(absl::Now() - began, absl::Milliseconds(700));
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(absl::StartsWith(told[0], "no host nobody.invalid: ")) << told[0];
}

TEST(ResolveTest, WhoWaitsForANameMayEndTheWait) {
  const absl::Status end = absl::CancelledError("the job has failed");
  EXPECT_EQ(AwaitAddress(kNobody, absl::InfiniteFuture(), [&](const std::string&) { return end; }),
            end);
  EXPECT_TRUE(AwaitAddress("127.0.0.1:7", absl::InfinitePast(), nullptr).ok());
}

TEST(ResolveTest, AnAddressThatStandsForAllIsReachedAtOneThatOthersCanCall) {
  EXPECT_EQ(ReachedAt("10.1.2.3:7001", "127.0.0.1:7000").value(), "10.1.2.3:7001");
  for (const char* all : {"0.0.0.0:7001", "[::]:7001"}) {
    const auto reached = ReachedAt(all, "127.0.0.1:7000");
    ASSERT_TRUE(reached.ok()) << reached.status();
    EXPECT_TRUE(CheckTarget(*reached).ok()) << *reached;
    EXPECT_TRUE(absl::EndsWith(*reached, ":7001"));
    EXPECT_EQ(absl::StartsWith(*reached, "127.0.0.1"), FullHostName().empty()) << *reached;
  }
  EXPECT_EQ(HostTowards("127.0.0.1:7000").value(), "127.0.0.1");
}

}  // namespace
}  // namespace tandem::rpc
