// Kills or stops any process of a job in mid-training. The job ends within 15 s, names the process
// and leaves nothing.
#include <csignal>
#include <filesystem>
#include <future>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

constexpr double kLimitSeconds = 15;
// For jobs that end side by side: the processors are busy, the time-outs are real.
constexpr double kSharedLimitSeconds = kLimitSeconds + 10;
constexpr double kStartSeconds = 60;  // for a job to log its first step on a busy machine

const Arguments kTwoByTwo{"--ps", "2", "--trainers", "2"};

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

// A job of which one role gets a signal in mid-training. A job in trouble mostly waits, so several
// may end side by side.
class JobInTrouble {
 public:
  JobInTrouble(const std::string& role, int signal)
      : role_(role), running_({"--ps", "2", "--trainers", "2", "--workers", "1"}) {
    const support::RunningProcess process = running_.job.Role(role);
    EXPECT_NE(process.pid, 0) << role << " does not run";
    EXPECT_EQ(process.parent, running_.pid());
    if (process.pid == 0) return;
    pid_ = process.pid;
    master_ = process.ValueOf("--master");
    const double since = support::Now();
    kill(process.pid, signal);
    // Waits beside the jobs that start meanwhile, so that each end has its own time.
    end_ = std::async(std::launch::async, [this, since] {
      support::Ended ended = running_.Wait();
      ended.seconds = support::Now() - since;
      return ended;
    });
  }

  const std::string& role() const { return role_; }
  pid_t pid() const { return pid_; }
  // Waits for the end, which must come in time and leave nothing.
  support::Ended End() {
    if (!end_.valid()) return {};
    const support::Ended ended = end_.get();
    EXPECT_FALSE(ended.timed_out);
    EXPECT_LE(ended.seconds, kSharedLimitSeconds);
    EXPECT_EQ(running_.job.Summary("run", "status"), "failed");
    running_.job.ExpectNothingLeft();
    EXPECT_FALSE(support::SomebodyListens(master_));
    return ended;
  }

 private:
  const std::string role_;
  LongJob running_;
  std::string master_;
  pid_t pid_ = 0;
  std::future<support::Ended> end_;
};

std::vector<std::unique_ptr<JobInTrouble>> JobsInTrouble(const std::vector<std::string>& roles,
                                                         int signal) {
  std::vector<std::unique_ptr<JobInTrouble>> jobs;
  for (const std::string& role : roles)
    jobs.push_back(std::make_unique<JobInTrouble>(role, signal));
  return jobs;
}

TEST(FaultTest, AKilledRoleEndsTheJobWithItsName) {
  if (!support::HasProc()) GTEST_SKIP() << "without /proc a role's process cannot be found";
  for (auto& job :
       JobsInTrouble({"master-0", "ps-1", "trainer-0", "trainer-1", "worker-0"}, SIGKILL)) {
    SCOPED_TRACE(job->role());
    const support::Ended ended = job->End();
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
    EXPECT_EQ(ended.err, "error: " + job->role() + " (pid " + std::to_string(job->pid()) +
                             ") was killed by SIGKILL\n");
  }
}

// A job whose master is stopped before anybody has joined.
class JobWithoutAMaster {
 public:
  JobWithoutAMaster() : launch_(job_.Start("launch", "run", kTwoByTwo)) {
    pid_t master = 0;
    EXPECT_TRUE(support::Eventually(support::kPatienceSeconds,
                                    [&] { return (master = job_.Role("master-0").pid) > 0; }));
    if (master > 0) kill(master, SIGSTOP);
    end_ = std::async(std::launch::async, [this] { return launch_->Wait(); });
  }
  void ExpectItsEnd() {
    const support::Ended ended = end_.get();
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_NE(ended.err.find("master-0"), std::string::npos) << ended.err;
    EXPECT_LT(ended.seconds, kSharedLimitSeconds);
    job_.ExpectNothingLeft();
  }

 private:
  SmallJob job_;
  const std::unique_ptr<support::Process> launch_;
  std::future<support::Ended> end_;
};

// A job of which a trainer crashes while the job stops.
class JobThatCrashesInAStop {
 public:
  JobThatCrashesInAStop()
      : launch_(
            job_.Start("launch", "run",
                       {"--ps", "1", "--trainers", "2", "--set", "train.max_steps=1000000", "--set",
                        "train.max_epochs=1000000", "--set", "train.eval_every_epochs=3"})) {
    EXPECT_TRUE(support::Eventually(kStartSeconds, [this] { return job_.HasCheckpoint("run"); }));
    const pid_t crashing = job_.Role("trainer-1").pid;
    EXPECT_GT(crashing, 0);
    if (crashing <= 0) return;
    kill(crashing, SIGSTOP);  // or it might have ended before it crashes
    kill(launch_->pid(), SIGTERM);
    EXPECT_TRUE(support::Eventually(support::kPatienceSeconds,
                                    [&] { return support::HasPending(crashing, SIGTERM); }));
    kill(crashing, SIGABRT);
    kill(crashing, SIGCONT);
  }
  void ExpectTheCrashToDecide() {
    const support::Ended ended = launch_->Wait();
    EXPECT_EQ(ended.exit_code, 128 + SIGABRT) << ended.err;
    EXPECT_NE(ended.err.find("error: trainer-1 (pid "), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("was killed by SIGABRT"), std::string::npos) << ended.err;
    EXPECT_NE(job_.Summary("run", "best_step"), "0") << "an epoch was evaluated and saved";
    EXPECT_EQ(job_.Summary("run", "params_hash"), "null");
  }

 private:
  SmallJob job_;
  const std::unique_ptr<support::Process> launch_;
};

// Every time-out here is real, so all of them run at once. The slowest takes 13 s.
TEST(FaultTest, ARoleThatIsStoppedOrCrashesInAStopEndsTheJobWithItsName) {
  if (!support::HasProc()) GTEST_SKIP() << "without /proc a role's process cannot be found";
  JobWithoutAMaster unjoined;
  JobThatCrashesInAStop crashing;
  for (auto& job : JobsInTrouble({"ps-1", "trainer-0", "trainer-1", "master-0"}, SIGSTOP)) {
    SCOPED_TRACE(job->role());
    const support::Ended ended = job->End();
    EXPECT_EQ(ended.exit_code, 75);
    EXPECT_EQ(ended.ErrorLines().size(), 1u) << ended.err;
    EXPECT_EQ(ended.err.rfind("error: " + job->role() + " (", 0), 0u) << ended.err;
    EXPECT_NE(ended.err.find("has not answered for"), std::string::npos) << ended.err;
  }
  unjoined.ExpectItsEnd();
  crashing.ExpectTheCrashToDecide();
}

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

TEST(MemberTest, AnUnreachableMasterIsNamedAndGivenUpInTime) {
  SmallJob job;
  const support::Ended ended =
      job.Start("trainer", "run", {"--master", "127.0.0.1:1", "--join-timeout", "1"})->Wait();
  EXPECT_EQ(ended.exit_code, 75);
  EXPECT_GE(ended.seconds, 1);
  EXPECT_LT(ended.seconds, 10);
  EXPECT_NE(
      ended.err.find("] error: master-0 at 127.0.0.1:1 unreachable for 1 s: failed to connect"),
      std::string::npos)
      << ended.err;
  job.ExpectNothingLeft();
}

}  // namespace
}  // namespace tandem::cluster
