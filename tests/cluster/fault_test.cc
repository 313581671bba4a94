// Kills or stops any process of a job in mid-training. The job ends within 15 s, names the process
// and leaves nothing.
#include <csignal>
#include <filesystem>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

constexpr double kLimitSeconds = 15;
constexpr double kStartSeconds = 60;  // for a job to log its first step on a busy machine

class LongJob {
 public:
  explicit LongJob(const Arguments& layout) {
    Arguments arguments{"--set", "train.max_steps=0", "--set", "train.max_epochs=10000000"};
    arguments.insert(arguments.end(), {"--set", "train.eval_every_epochs=10000000", "--set",
                                       "train.log_every_steps=10"});
    arguments.insert(arguments.end(), layout.begin(), layout.end());
    launch_ = job.Start("launch", "run", arguments);
    const bool trains =
        support::Eventually(kStartSeconds, [this] { return job.HasLoggedAStep("run"); });
    EXPECT_TRUE(trains);
  }
  pid_t pid() const { return launch_->pid(); }
  support::Ended Wait() {
    const double begin = support::Now();
    support::Ended ended = launch_->Wait(2 * kLimitSeconds);
    ended.seconds = support::Now() - begin;
    return ended;
  }

  SmallJob job;

 private:
  std::unique_ptr<support::Process> launch_;
};

const Arguments kTwoByTwo{"--ps", "2", "--trainers", "2"};

class FaultTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!support::HasProc()) GTEST_SKIP() << "without /proc a role's process cannot be found";
  }
  // Sends the signal to the role. Returns how the job ended.
  support::Ended EndOfJobAfter(int signal) {
    LongJob running(kTwoByTwo);
    const support::RunningProcess role = running.job.Role(GetParam());
    EXPECT_NE(role.pid, 0) << GetParam() << " does not run";
    EXPECT_EQ(role.parent, running.pid());
    if (role.pid == 0) return {};
    pid_ = role.pid;
    kill(role.pid, signal);
    const support::Ended ended = running.Wait();
    EXPECT_FALSE(ended.timed_out);
    EXPECT_LE(ended.seconds, kLimitSeconds);
    EXPECT_EQ(running.job.Summary("run", "status"), "failed");
    running.job.ExpectNothingLeft();
    EXPECT_FALSE(support::SomebodyListens(role.ValueOf("--master")));
    return ended;
  }
  pid_t pid_ = 0;
};

TEST_P(FaultTest, KilledRoleEndsTheJobWithItsName) {
  const support::Ended ended = EndOfJobAfter(SIGKILL);
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
  EXPECT_EQ(ended.err,
            "error: " + GetParam() + " (pid " + std::to_string(pid_) + ") was killed by SIGKILL\n");
}

TEST_P(FaultTest, StoppedRoleEndsTheJobWithItsName) {
  const support::Ended ended = EndOfJobAfter(SIGSTOP);
  EXPECT_EQ(ended.exit_code, 75);
  EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
  EXPECT_EQ(ended.err.rfind("error: " + GetParam() + " (", 0), 0u) << ended.err;
  EXPECT_NE(ended.err.find("has not answered for"), std::string::npos) << ended.err;
}

INSTANTIATE_TEST_SUITE_P(Roles, FaultTest,
                         testing::Values("master-0", "ps-1", "trainer-0", "trainer-1"),
                         [](const auto& info) {
                           return info.param.substr(0, info.param.size() - 2) + info.param.back();
                         });

TEST(LaunchTest, SigtermStopsTheJobInOrder) {
  for (const Arguments& layout : {kTwoByTwo, Arguments{"--local", "--trainers", "2"}}) {
    LongJob running(layout);
    kill(running.pid(), SIGTERM);
    const support::Ended ended = running.Wait();
    EXPECT_EQ(ended.exit_code, 128 + SIGTERM);
    EXPECT_LT(ended.seconds, 5);
    EXPECT_EQ(ended.err.rfind("stopped by SIGTERM after step ", 0), 0u) << ended.err;
    EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    EXPECT_EQ(running.job.Summary("run", "status"), "stopped");
    EXPECT_NE(running.job.Summary("run", "steps"), "0");
    running.job.ExpectNothingLeft();
  }
}

// The addresses on 127.0.0.1 to which a process' sockets are bound.
std::vector<std::string> BoundAddresses(pid_t pid) {
  std::vector<std::string> bound;
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd")) {
    const int fd =
        static_cast<int>(syscall(SYS_pidfd_getfd, process, std::stoi(entry.path().filename()), 0));
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        address.sin_family == AF_INET) {
      bound.push_back("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
    }
    close(fd);
  }
  close(process);
  return bound;
}

// Otherwise a process that asks for a free port before the master starts may get the master's port,
// and be taken for the master.
TEST(LaunchTest, HoldsItsMastersPortAsLongAsItRuns) {
  if (!support::HasProc()) GTEST_SKIP() << "without /proc a process' sockets cannot be found";
  LongJob running(kTwoByTwo);
  const std::string master = running.job.Role("master-0").ValueOf("--master");
  EXPECT_EQ(BoundAddresses(running.pid()), std::vector<std::string>{master});
  kill(running.pid(), SIGTERM);
  EXPECT_EQ(running.Wait().exit_code, 128 + SIGTERM);
  running.job.ExpectNothingLeft();
}

TEST(LaunchTest, ItsRolesDieWithIt) {
  LongJob running(kTwoByTwo);
  kill(running.pid(), SIGKILL);
  EXPECT_EQ(running.Wait().exit_code, 128 + SIGKILL);
  running.job.ExpectNothingLeft(/*moment_seconds=*/5);
}

TEST(LaunchTest, AMasterThatIsStoppedBeforeAnybodyJoinsIsNamed) {
  SmallJob job;
  const auto launch = job.Start("launch", "run", kTwoByTwo);
  pid_t master = 0;
  ASSERT_TRUE(support::Eventually(support::kPatienceSeconds,
                                  [&] { return (master = job.Role("master-0").pid) > 0; }));
  kill(master, SIGSTOP);
  const support::Ended ended = launch->Wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_LT(ended.seconds, 15);
  EXPECT_NE(ended.err.find("master-0"), std::string::npos) << ended.err;
  job.ExpectNothingLeft();
}

TEST(MemberTest, AnUnreachableMasterIsNamedAndGivenUpInTime) {
  SmallJob job;
  const support::Ended ended =
      job.Start("trainer", "run", {"--master", "127.0.0.1:1", "--join-timeout", "3"})->Wait();
  EXPECT_EQ(ended.exit_code, 75);
  EXPECT_GE(ended.seconds, 3);
  EXPECT_LT(ended.seconds, 10);
  EXPECT_TRUE(ended.err.ends_with("] error: master-0 at 127.0.0.1:1 unreachable for 3 s\n"))
      << ended.err;
  job.ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::cluster
