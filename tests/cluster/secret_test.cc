// A job's secret, seen from outside: the secret shows nowhere. Roles that do not know the secret
// are refused.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>

#include "rpc/credentials.h"
#include "rpc/listen.h"
#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

constexpr double kDeadlineSeconds = 60;
constexpr char kSecret[] = "only the processes of one job know this";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class SecretTest : public testing::Test {
 protected:
  std::string SecretFile(const std::string& name, const std::string& secret) {
    const std::string path = job_.Write(name, secret + "\n");
    chmod(path.c_str(), 0600);
    return path;
  }
  // Returns what a text gives away, or "".
  std::string Betrayed(const std::string& text) const {
    if (text.find(kSecret) != std::string::npos) return "the secret";
    return text.find(token_) != std::string::npos ? "the token" : "";
  }

  SmallJob job_;
  const std::string token_ =
      rpc::Credentials(*rpc::Secret::FromText(kSecret, "a test")).shown().substr(7);
};

TEST_F(SecretTest, ShowsNowhereAndRolesOfAnotherJobAreRefusedAndHarmNothing) {
  auto held = rpc::HeldAddress::Hold("127.0.0.1:0");
  const std::string master = (*held)->text();
  held->reset();
  setenv("TANDEM_SECRET", kSecret, 1);
  const auto launch =
      job_.Start("launch", "run",
                 {"--ps", "2", "--trainers", "2", "--workers", "1", "--master", master, "--set",
                  "train.max_steps=0", "--set", "train.max_epochs=10000000"});
  unsetenv("TANDEM_SECRET");
  ASSERT_TRUE(support::Eventually(kDeadlineSeconds, [this] { return job_.HasLoggedAStep("run"); }));

  std::vector<support::RunningProcess> processes = job_.Processes();
  EXPECT_EQ(processes.size(),
            support::HasProc() ? 7u : 0u);  // launch, a master, two servers, two trainers, a worker
  for (const support::RunningProcess& process : processes) {
    const std::filesystem::path proc = "/proc/" + std::to_string(process.pid);
    for (const char* file : {"cmdline", "environ"})
      EXPECT_EQ(Betrayed(ReadFile(proc / file)), "") << process.pid << " " << file;
    if (process.pid != launch->pid()) {
      EXPECT_EQ(std::filesystem::read_symlink(proc / "fd/0"), "/dev/null")
          << "where the secret came from";
    }
  }

  const std::string other = SecretFile("other_secret", "a secret of another job, which is as long");
  for (const char* role : {"trainer", "ps", "worker"}) {
    for (const Arguments& secret : {Arguments{"--secret-file", other}, Arguments{}}) {
      Arguments arguments{"--ps", "2", "--trainers", "2", "--workers", "1", "--master", master};
      arguments.insert(arguments.end(), secret.begin(), secret.end());
      const support::Ended ended = job_.Start(role, "run", arguments)->Wait(kDeadlineSeconds);
      EXPECT_EQ(ended.exit_code, 75) << ended.err;
      EXPECT_NE(ended.err.find("the master at " + master + " belongs to another job"),
                std::string::npos)
          << ended.err;
      EXPECT_EQ(ended.ErrorLines().size(), secret.empty() ? 2u : 1u)
          << ended.err;  // a warning before
    }
  }
  EXPECT_FALSE(launch->HasEnded());

  kill(launch->pid(), SIGTERM);
  const support::Ended ended = launch->Wait(kDeadlineSeconds);
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.err;
  EXPECT_EQ(Betrayed(ended.out + ended.err), "");
  int num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(job_.Path("run"))) {
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(Betrayed(ReadFile(entry.path())), "") << entry.path();
    ++num_files;
  }
  EXPECT_GT(num_files, 4);
  job_.ExpectNothingLeft();
}

TEST_F(SecretTest, ARoleThatWouldBeReachedFromElsewhereNeedsOne) {
  for (const Arguments& place :
       {Arguments{"ps", "--master", "127.0.0.1:1", "--listen", "0.0.0.0:0"},
        Arguments{"trainer", "--master", "192.0.2.1:1"},
        Arguments{"master", "--listen", "0.0.0.0:0"}}) {
    const support::Ended ended =
        job_.Start(place[0], "run", Arguments(place.begin() + 1, place.end()))->Wait(10);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_NE(ended.err.find("--secret-file FILE"), std::string::npos) << ended.err;
  }
}

TEST_F(SecretTest, ASecretFileThatEveryUserReadsIsRefused) {
  const std::string open = SecretFile("open_secret", kSecret);
  chmod(open.c_str(), 0644);
  const support::Ended ended = job_.Launch("run", {"--secret-file", open});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("chmod 600"), std::string::npos) << ended.err;
  EXPECT_EQ(Betrayed(ended.err), "");
}

}  // namespace
}  // namespace tandem::cluster
