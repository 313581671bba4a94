#include "trainer/cli/process/job_secret.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temp_folder.h"

namespace tandem::cli {
namespace {

constexpr char kText[] = "a secret for these tests";

std::string TokenOf(const std::string& text) {
  return rpc::Credentials(*rpc::Secret::FromText(text, "a test")).shown();
}

RoleAccess Role(const std::string& master, const std::string& listen) {
  return {.secret_file = "", .master = master, .listen = listen};
}

class JobSecretTest : public testing::Test {
 protected:
  void SetUp() override { unsetenv("TANDEM_SECRET"); }
  void TearDown() override { unsetenv("TANDEM_SECRET"); }

  const support::TempFolder folder_;
};

TEST_F(JobSecretTest, ComesFromTheVariableWhichIsGoneAfterwards) {
  setenv("TANDEM_SECRET", kText, 1);
  const char* value = std::getenv("TANDEM_SECRET");
  const auto credentials = CredentialsOfRole(Role("10.1.2.3:7000", "0.0.0.0:0"), "ps");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ(credentials->shown(), TokenOf(kText));
  EXPECT_EQ(std::getenv("TANDEM_SECRET"), nullptr);
  EXPECT_EQ(std::string(value), "") << "what /proc shows is wiped too";
}

TEST_F(JobSecretTest, AFileCountsMoreThanTheVariable) {
  setenv("TANDEM_SECRET", "the variable's own secret", 1);
  RoleAccess access = Role("10.1.2.3:7000", "");
  access.secret_file = folder_.Write("secret", std::string(kText) + "\n");
  chmod(access.secret_file.c_str(), 0600);
  const auto credentials = CredentialsOfRole(access, "ps");
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ(credentials->shown(), TokenOf(kText));
  EXPECT_EQ(std::getenv("TANDEM_SECRET"), nullptr);
}

TEST_F(JobSecretTest, WithoutOneARoleWarnsAndUsesAddressesOfThisMachineAlone) {
  testing::internal::CaptureStderr();
  const auto credentials = CredentialsOfRole(Role("127.0.0.1:7000", "localhost:0"), "ps");
  const std::string warning = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_TRUE(credentials->empty());
  EXPECT_EQ(warning.rfind("[ps ", 0), 0u) << warning;
  EXPECT_NE(warning.find("] warning: no secret: "), std::string::npos) << warning;
  EXPECT_EQ(warning.find('\n'), warning.size() - 1) << warning;
  for (const RoleAccess& access :
       {Role("10.1.2.3:7000", "127.0.0.1:0"), Role("127.0.0.1:7000", "0.0.0.0:0"),
        Role("127.0.0.1:7000", ":0")}) {
    const absl::Status refused = CredentialsOfRole(access, "ps").status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_NE(std::string(refused.message()).find("--secret-file FILE"), std::string::npos)
        << refused;
  }
}

TEST_F(JobSecretTest, ALaunchThatWasGivenNoneDrawsOne) {
  const auto first = SecretOfLaunch(""), second = SecretOfLaunch("");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(rpc::Credentials(*first).shown(), rpc::Credentials(*second).shown());
  setenv("TANDEM_SECRET", kText, 1);
  const auto given = SecretOfLaunch("");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(rpc::Credentials(*given).shown(), TokenOf(kText));
  setenv("TANDEM_SECRET", "short", 1);
  EXPECT_TRUE(absl::IsInvalidArgument(SecretOfLaunch("").status()));
}

TEST(IsLoopbackTest, KnowsTheAddressesThatOnlyThisMachineReaches) {
  for (const char* here :
       {"127.0.0.1:1", "127.9.9.9:0", "localhost:80", "[::1]:5", "[::ffff:127.0.0.1]:5"})
    EXPECT_TRUE(IsLoopback(here)) << here;
  for (const char* elsewhere : {"0.0.0.0:1", "[::]:1", ":1", "", "192.0.2.1:5", "[2001:db8::1]:5",
                                "128.0.0.1:1", "*:0", "http://127.0.0.1:5"}) {
    EXPECT_FALSE(IsLoopback(elsewhere)) << elsewhere;
  }
}

}  // namespace
}  // namespace tandem::cli
