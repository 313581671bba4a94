// `tandem bench pull-push` as a user runs it: its figures are JSON and it refuses bad arguments.
// No process outlives the command, however the command ends.
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace tandem::cluster {
namespace {

class BenchPullPushTest : public testing::Test {
 protected:
  std::unique_ptr<support::Process> Start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {TANDEM_BINARY, "bench", "pull-push", "--json", json_});
    return std::make_unique<support::Process>(folder_.path(), arguments);
  }
  std::string Json() const {
    std::ifstream file(json_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  struct Case {
    std::string mode, path, wire;
    int permits = 1;
  };
  // Runs a small table of cases. Expects success and one line for each of `cases`, no other.
  void RunAndCheck(std::vector<std::string> arguments, const std::vector<Case>& cases) const;
  // Finds the processes that the command started: their arguments name their master.
  static std::vector<support::RunningProcess> Children(pid_t parent) {
    std::vector<support::RunningProcess> children;
    for (const auto& process : support::ProcessesMentioning("--case")) {
      if (process.parent == parent) children.push_back(process);
    }
    return children;
  }

  const support::TempFolder folder_;
  const std::string json_ = folder_ / "bench.json";
};

void BenchPullPushTest::RunAndCheck(std::vector<std::string> arguments,
                                    const std::vector<Case>& cases) const {
  for (const char* argument :
       {"--clients", "2", "--servers", "2", "--threads", "2", "--rows", "3000", "--dim", "5",
        "--batch", "50", "--ids", "zipf", "--steps", "3", "--repetitions", "1"}) {
    arguments.push_back(argument);
  }
  const auto bench = Start(arguments);
  const support::Ended ended = bench->WaitWhileItWorks();
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_EQ(ended.out.find("FAIL"), std::string::npos) << ended.out;
  EXPECT_TRUE(Children(bench->pid()).empty());
  const std::string json = Json();
  size_t at = 0;
  for (const auto& [mode, path, wire, permits] : cases) {
    at = json.find("{\"mode\"", at);
    ASSERT_NE(at, std::string::npos) << json;
    double rows = 0, gigabytes = 0, p50 = 0, p99 = 0, pull = 0, own = 0, push = 0, raw = 0,
           ratio = 0;
    const std::string format =
        "{\"mode\":\"" + mode +
        "\",\"clients\":2,\"servers\":2,\"threads\":2,\"permits\":" + std::to_string(permits) +
        ",\"rows\":3000,\"dim\":5,\"batch\":50,\"ids\":\"zipf\",\"path\":\"" + path +
        "\",\"wire\":\"" + wire +
        "\",\"rows_per_second\":%lf,\"gb_per_second\":%lf,\"p50_ms\":%lf,\"p99_ms\":%lf,"
        "\"pull_ms\":%lf,\"own_ms\":%lf,\"push_ms\":%lf,"
        "\"raw_" +
        path + "_gb_per_second\":%lf,\"ratio_to_raw_" + path + "\":%lf,\"correct\":true}";
    int length = 0;
    ASSERT_EQ(std::sscanf(json.c_str() + at, (format + "%n").c_str(), &rows, &gigabytes, &p50, &p99,
                          &pull, &own, &push, &raw, &ratio, &length),
              9)
        << json;
    EXPECT_GT(length, 0) << json;
    for (const double figure : {rows, gigabytes, p50, own, raw, ratio})
      EXPECT_GT(figure, 0) << json;
    EXPECT_EQ(pull > 0, mode != "push") << json;
    EXPECT_EQ(push > 0, mode != "pull") << json;
    EXPECT_GE(p99, p50);
    ++at;
  }
  EXPECT_EQ(json.find("{\"mode\"", at), std::string::npos) << json;
}

// The mode says what a client does, the path over what. So each mode takes one path here, and each
// path takes a pull, a push and a pooled pull.
TEST_F(BenchPullPushTest, EveryModeIsMeasuredCheckedAndWritten) {
  std::vector<Case> cases;
  for (const std::string mode : {"pull_push", "pooled", "pull", "push", "hybrid", "hybrid_pooled"})
    cases.push_back({mode, "grpc", "f32"});
  RunAndCheck({"--wire", "f32", "--path", "grpc"}, cases);
}

TEST_F(BenchPullPushTest, StepsOverSharedMemoryMayBeUnderWayAtOnce) {
  RunAndCheck({"--mode", "push", "pull", "--path", "shm", "--wire", "f32", "--permits", "2"},
              {{"push", "shm", "f32", 2}, {"pull", "shm", "f32", 2}});
  RunAndCheck({"--mode", "hybrid_pooled", "--path", "shm", "--wire", "f32"},
              {{"hybrid_pooled", "shm", "f32"}});
}

TEST_F(BenchPullPushTest, RowsMayTravelRounded) {
  RunAndCheck({"--mode", "pull_push", "hybrid", "--wire", "bf16"},
              {{"pull_push", "grpc", "bf16"}, {"hybrid", "grpc", "bf16"}});
}

TEST_F(BenchPullPushTest, AStepMayHaveSeveralParts) {  // about 20,000 distinct ids
  const auto bench = Start({"--mode",  "pull_push", "--path",  "shm",           "--wire",
                            "f32",     "--servers", "2",       "--rows",        "50000",
                            "--dim",   "2",         "--batch", "1000",          "--ids",
                            "uniform", "--steps",   "3",       "--repetitions", "1"});
  const support::Ended ended = bench->WaitWhileItWorks();
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_EQ(ended.out.find("FAIL"), std::string::npos) << ended.out;
}

TEST_F(BenchPullPushTest, ASignalOrADeadServerEndsAllProcesses) {
  for (const bool interrupted : {true, false}) {
    const auto bench = Start({"--mode", "pull_push", "--rows", "1000", "--dim", "4", "--batch",
                              "10", "--ids", "uniform", "--seconds", "100"});
    std::vector<support::RunningProcess> children;
    ASSERT_TRUE(support::Eventually(support::kPatienceSeconds, [&] {
      children = Children(bench->pid());
      return children.size() == 3;
    }));
    pid_t server = 0;
    for (const auto& child : children) {
      if (child.ValueOf("--role") == "server") server = child.pid;
    }
    ASSERT_NE(server, 0);
    kill(interrupted ? bench->pid() : server, interrupted ? SIGINT : SIGKILL);
    const support::Ended ended = bench->WaitWhileItWorks();
    EXPECT_EQ(ended.exit_code, 128 + (interrupted ? SIGINT : SIGKILL)) << ended.err;
    EXPECT_NE(ended.err.find(interrupted ? "stopped by SIGINT" : "ps-0"), std::string::npos)
        << ended.err;
    for (const auto& child : children)
      EXPECT_NE(kill(child.pid, 0), 0) << child.ValueOf("--role") << " is left";
  }
}

TEST_F(BenchPullPushTest, WhatCannotBeMeasuredIsRefusedBeforeAnythingIs) {
  const support::Ended few = Start({"--rows", "100", "--batch", "51"})->WaitWhileItWorks();
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_EQ(few.out, "");
  EXPECT_NE(few.err.find("--batch 51 with --mode pull"), std::string::npos) << few.err;
  const support::Ended in_turn = Start({"--mode", "hybrid", "--permits", "2"})->WaitWhileItWorks();
  EXPECT_EQ(in_turn.exit_code, 2);
  EXPECT_NE(in_turn.err.find("--permits 2 with --mode hybrid"), std::string::npos) << in_turn.err;
  const support::Ended nowhere =
      Start({"--json", folder_ / "nowhere/bench.json"})->WaitWhileItWorks();
  EXPECT_EQ(nowhere.exit_code, 2);
}

}  // namespace
}  // namespace tandem::cluster
