// Signals that reach a running job. Handled signals change no bit. A closed terminal stops a run as
// SIGTERM does.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

constexpr double kDeadlineSeconds = support::kPatienceSeconds;

// Sets an environment variable for the programs that the test starts.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* const name_;
};

class SignalStormTest : public testing::TestWithParam<Arguments> {};

TEST_P(SignalStormTest, HandledSignalsChangeNoBit) {
#ifdef TANDEM_SANITIZED
  GTEST_SKIP() << "a sanitizer wants to be preloaded first";
#endif
  // oneDNN's kernels for processors without AVX-512 use the stack pointer for other data.
  const Environment instructions("ONEDNN_MAX_CPU_ISA", "AVX2");
  SmallJob job(SmallJobKind::LANGUAGE);
  Arguments run = GetParam();
  for (const char* set : {"model.gpt.dim=64", "model.gpt.max_length=64", "model.gpt.layers=2",
                          "train.batch_size=16"}) {
    run.insert(run.end(), {"--set", set});
  }
  const std::string undisturbed = job.HashOf("undisturbed", run);
  const Environment log("SIGNAL_STORM_LOG", job.Path("storm"));
  const Environment preload("LD_PRELOAD", TANDEM_SIGNAL_STORM);
  EXPECT_EQ(job.HashOf("stormed", run), undisturbed);
  const std::string stormed = job.Read("storm");
  EXPECT_GE(std::count(stormed.begin(), stormed.end(), '\n'), GetParam()[0] == "--local" ? 1 : 5)
      << "handlers hardly ran";
}

INSTANTIATE_TEST_SUITE_P(Layouts, SignalStormTest,
                         testing::Values(Arguments{"--local", "--trainers", "2"},
                                         Arguments{"--ps", "2", "--trainers", "2"}),
                         [](const auto& info) {
                           return info.param[0] == "--local" ? "Local" : "TwoByTwo";
                         });

class StopTest : public testing::Test {
 protected:
  // Starts an endless run and returns once a checkpoint was written and the run goes on.
  std::unique_ptr<support::Process> StartEndless(const Arguments& layout) {
    Arguments arguments = layout;
    arguments.insert(arguments.end(),
                     {"--set", "train.max_steps=1000000", "--set", "train.max_epochs=1000000",
                      "--set", "train.eval_every_epochs=3"});
    auto launch = job_.Start("launch", "run", arguments);
    EXPECT_TRUE(
        support::Eventually(kDeadlineSeconds, [this] { return job_.HasCheckpoint("run"); }));
    return launch;
  }

  SmallJob job_;
};

TEST_F(StopTest, HangupStopsWithACheckpoint) {
  for (const Arguments& layout :
       {Arguments{"--local"}, Arguments{"--ps", "1", "--trainers", "2"}}) {
    const auto launch = StartEndless(layout);
    kill(launch->pid(), SIGHUP);
    const support::Ended ended = launch->Wait(kDeadlineSeconds);
    EXPECT_EQ(ended.exit_code, 128 + SIGHUP) << ended.err;
    EXPECT_EQ(ended.err.find("error"), std::string::npos) << "a stop is no error: " << ended.err;
    EXPECT_NE(ended.err.find("stopped by SIGHUP after step "), std::string::npos) << ended.err;
    EXPECT_EQ(job_.Summary("run", "status"), "stopped");
    std::filesystem::remove_all(job_.Path("run"));
  }
  job_.ExpectNothingLeft();
}

TEST_F(StopTest, HangupThatWasIgnoredAtTheStartIsNoStop) {
  std::signal(SIGHUP, SIG_IGN);  // nohup does this too
  const auto launch = StartEndless({"--ps", "1", "--trainers", "1"});
  std::signal(SIGHUP, SIG_DFL);
  kill(launch->pid(), SIGHUP);
  kill(job_.Role("trainer-0").pid, SIGHUP);
  const size_t steps = job_.Losses("run").size();
  EXPECT_TRUE(support::Eventually(kDeadlineSeconds,
                                  [&] { return job_.Losses("run").size() > steps + 20; }));
  kill(launch->pid(), SIGTERM);
  EXPECT_EQ(launch->Wait(kDeadlineSeconds).exit_code, 128 + SIGTERM);
}

}  // namespace
}  // namespace tandem::cluster
