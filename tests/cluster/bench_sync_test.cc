// `tandem bench sync` as a user runs it: both ways end with the right weights and move the bytes of
// the formulas, and no process outlives the command.
#include <cmath>
#include <csignal>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace tandem::cluster {
namespace {

class BenchSyncTest : public testing::Test {
 protected:
  std::unique_ptr<support::Process> Start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {TANDEM_BINARY, "bench", "sync"});
    return std::make_unique<support::Process>(folder_.path(), arguments);
  }
  static std::vector<support::RunningProcess> Children(pid_t parent) {
    std::vector<support::RunningProcess> children;
    for (const auto& process : support::ProcessesMentioning("--case")) {
      if (process.parent == parent) children.push_back(process);
    }
    return children;
  }

  const support::TempFolder folder_;
};

TEST_F(BenchSyncTest, BothWaysMoveTheBytesOfTheFormulas) {
  const std::string path = folder_ / "sync.json";
  const auto bench = Start({"--quick", "--bytes", "1048576", "--json", path});
  const support::Ended ended = bench->WaitWhileItWorks();
  ASSERT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  const auto points = nlohmann::json::parse(std::ifstream(path));
  ASSERT_EQ(points.size(), 4u) << points;  // two ways, two links
  for (const auto& point : points) {
    EXPECT_TRUE(point["correct"]) << point;
    EXPECT_GT(point["cpu_us_trainers"], 0) << point;
    EXPECT_GE(point["microseconds"], point["low"]) << point;
    EXPECT_LE(point["microseconds"], point["high"]) << point;
    // Each of two trainers sends and receives the array once, by a ring and by a server.
    const double array = point["bytes"], trainer = point["bytes_per_trainer"];
    EXPECT_NEAR(trainer, 2 * array, 0.02 * 2 * array) << point;
    const bool ring = point["way"] == "ring";
    const double wanted = ring ? 0 : 4 * array, server = point["bytes_per_server"];
    EXPECT_NEAR(server, wanted, 0.02 * wanted) << point;
    EXPECT_EQ(point["cpu_us_servers"] > 0, !ring) << point;
  }
}

TEST_F(BenchSyncTest, AMemberThatIsKilledEndsTheBenchWithItsName) {
  const auto bench = Start({"--bytes", "67108864", "--link", "tcp"});
  std::vector<support::RunningProcess> children;
  ASSERT_TRUE(support::Eventually(support::kPatienceSeconds, [&] {
    children = Children(bench->pid());
    return children.size() == 2;
  }));
  kill(children[1].pid, SIGKILL);
  const support::Ended ended = bench->WaitWhileItWorks();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_NE(ended.err.find("trainer-"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("was killed by SIGKILL"), std::string::npos) << ended.err;
  EXPECT_TRUE(Children(bench->pid()).empty());
}

TEST_F(BenchSyncTest, SizesThatNoPointHasAreRefused) {
  const support::Ended ended = Start({"--bytes", "5"})->Wait();
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("--link and --bytes leave no point"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace tandem::cluster
