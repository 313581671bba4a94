#include "rpc/listen.h"

#include <gtest/gtest.h>

#include "rpc/server.h"

namespace tandem::rpc {
namespace {

// What it refuses, and how, is tested with the server, which asks it first.
TEST(ListenTest, PicksAFreePortThatAServerCanTake) {
  const auto picked = TryListen("127.0.0.1:0");
  ASSERT_TRUE(picked.ok()) << picked.status();
  EXPECT_TRUE(picked->starts_with("127.0.0.1:")) << *picked;
  EXPECT_NE(*picked, "127.0.0.1:0");
  Server server;
  ASSERT_TRUE(server.Start(*picked).ok());
  EXPECT_EQ(server.address(), *picked);
  EXPECT_EQ(TryListen(*picked).status().message(), "port in use: " + *picked);
}

}  // namespace
}  // namespace tandem::rpc
