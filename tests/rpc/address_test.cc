#include "rpc/address.h"

#include <gtest/gtest.h>

namespace tandem::rpc {
namespace {

TEST(AddressTest, NamesAndBothKindsOfNumbersAreTaken) {
  for (const auto& [text, host, port] : std::vector<std::tuple<std::string, std::string, int>>{
           {"127.0.0.1:5000", "127.0.0.1", 5000},
           {"0.0.0.0:0", "0.0.0.0", 0},
           {"ps-1.job_3.svc.cluster.local:65535", "ps-1.job_3.svc.cluster.local", 65535},
           {"[::1]:80", "::1", 80},
           {"[fe80::1%eth0]:80", "fe80::1%eth0", 80}}) {
    const auto address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->host, host);
    EXPECT_EQ(address->port, port);
  }
}

TEST(AddressTest, OtherFormsAreRefusedSayingWhichIsWanted) {
  for (const char* text :
       {"", "127.0.0.1", ":5000", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1",
        "127.0.0.1:5000x", "127.0.0.1:0x50", "127.0.0.1:99999999999999999999",
        "http://127.0.0.1:5000", "*:0", "::1:0", "[::1", "[name]:5000", "a b:5000", "ho\xe9t:5000",
        "user@host:5000"}) {
    const absl::Status status = ParseAddress(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << ": " << status;
    EXPECT_NE(status.message().find("expected HOST:PORT"), absl::string_view::npos) << status;
  }
}

TEST(AddressTest, TargetIsOneHostAndAPort) {
  EXPECT_TRUE(CheckTarget("master-0:5000").ok());
  for (const char* text : {"127.0.0.1:0", "0.0.0.0:5000", "[::]:5000", "127.0.0.1"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckTarget(text))) << text;
  }
}

}  // namespace
}  // namespace tandem::rpc
