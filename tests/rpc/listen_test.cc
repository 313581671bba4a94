#include "rpc/listen.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/server.h"
#include "tests/support/loopback.h"

namespace tandem::rpc {
namespace {

int PortOf(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

// Binds `address` as a stranger who wants the port for itself. Returns 0 or the error.
int ErrorOfTaking(const std::string& address) {
  const sockaddr_in wanted = support::Loopback(PortOf(address));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int error =
      bind(fd, reinterpret_cast<const sockaddr*>(&wanted), sizeof wanted) == 0 ? 0 : errno;
  close(fd);
  return error;
}

// server_test.cc covers addresses that cannot be had and their errors: the server asks first.
TEST(HeldAddressTest, IsKeptForTheServerThatNamesIt) {
  auto held = HeldAddress::Hold("127.0.0.1:0");
  ASSERT_TRUE(held.ok()) << held.status();
  const std::string address = (*held)->text();
  EXPECT_TRUE(address.starts_with("127.0.0.1:")) << address;
  EXPECT_NE(PortOf(address), 0);
  EXPECT_EQ(ErrorOfTaking(address), EADDRINUSE);
  {
    Server server;
    ASSERT_TRUE(server.Start(address).ok());
    EXPECT_EQ(server.address(), address);
    EXPECT_EQ(HeldAddress::Hold(address).status().message(), "port in use: " + address);
  }
  Server again;
  EXPECT_TRUE(again.Start(address).ok());
  again.Shutdown(0);
  held->reset();
  EXPECT_EQ(ErrorOfTaking(address), 0);
}

TEST(HeldAddressTest, TwoThatStartServersCannotHaveOne) {
  auto first = HeldAddress::HoldAlone("127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = (*first)->text();
  const absl::Status second = HeldAddress::HoldAlone(address).status();
  EXPECT_TRUE(absl::IsUnavailable(second)) << second;
  EXPECT_EQ(second.message(), "port in use: " + address);
  Server server;
  EXPECT_TRUE(server.Start(address).ok()) << "the server that the first one starts";
  server.Shutdown(0);
  first->reset();
  EXPECT_TRUE(HeldAddress::HoldAlone(address).ok());
}

}  // namespace
}  // namespace tandem::rpc
