// `tandem bench sync` as a user runs it: both ways end with the right weights and move the bytes of
// the formulas, and no process outlives the command.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
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
  std::map<std::string, int> swept, fitted;  // by link
  for (const auto& point : points) {
    ++(point["fitted"] ? fitted : swept)[point["link"]];
    EXPECT_TRUE(point["measured"]) << point;
    EXPECT_TRUE(point["correct"]) << point;
    EXPECT_GT(point["cpu_us_trainers"], 0) << point;
    EXPECT_GE(point["microseconds"], point["low"]) << point;
    EXPECT_LE(point["microseconds"], point["high"]) << point;
    EXPECT_GT(point["predicted_microseconds"], 0) << point;
    const bool ring = point["way"] == "ring";
    EXPECT_EQ(point["cpu_us_servers"] > 0, !ring) << point;
    if (point["bytes"] < 1048576) continue;
    // A cable counts headers, and acknowledgements of what comes the other way.
    const double margin = point["link"] == "shm" || point["link"] == "tcp" ? 0.02 : 0.1;
    const double trainer = point["bytes_per_trainer_by_formula"],
                 server = point["bytes_per_server_by_formula"];
    EXPECT_NEAR(point["bytes_per_trainer"], trainer, margin * trainer) << point;
    EXPECT_NEAR(point["bytes_per_server"], server, margin * server) << point;
    if (point["trainers"] == 1) continue;
    // Each of two trainers sends and receives the array once, by a ring and by a server.
    const double array = point["bytes"];
    EXPECT_EQ(trainer, 2 * array) << point;
    EXPECT_EQ(server, ring ? 0 : 4 * array) << point;
  }
  EXPECT_EQ(swept["shm"], 2) << points;
  EXPECT_EQ(swept["tcp"], 2) << points;
  const int capped = ended.out.find("left out: ") == std::string::npos ? 2 : 0;
  EXPECT_EQ(swept["1gbit"], capped) << ended.out;
  EXPECT_EQ(swept["100mbit"], capped) << ended.out;
  EXPECT_LE(fitted["shm"] + fitted["tcp"] + fitted["1gbit"], 12);
}

TEST_F(BenchSyncTest, ASlowPointIsModelledInsteadOfMeasured) {
  const std::string path = folder_ / "sync.json";
  const auto bench = Start({"--bytes", "268435456", "--link", "100mbit", "--json", path});
  const support::Ended ended = bench->WaitWhileItWorks();
  if (ended.out.find("left out: ") != std::string::npos) {
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    GTEST_SKIP() << "this machine makes no network namespaces";
  }
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  int modelled = 0;
  for (const auto& point : nlohmann::json::parse(std::ifstream(path))) {
    if (point["measured"]) continue;
    ++modelled;
    EXPECT_TRUE(point["microseconds"].is_null()) << point;
    EXPECT_TRUE(point["correct"].is_null()) << point;
    EXPECT_GT(point["predicted_microseconds"], 2e6) << point;
  }
  EXPECT_GE(modelled, 4) << ended.out;
  EXPECT_NE(ended.out.find(" ~ "), std::string::npos) << ended.out;
}

struct KilledMember {
  std::string link, role, name;
};
void PrintTo(const KilledMember& killed, std::ostream* out) {
  *out << killed.name << " over " << killed.link;
}
class KilledMemberTest : public BenchSyncTest, public testing::WithParamInterface<KilledMember> {
 protected:
  // All that this machine's processes are in.
  static std::set<std::string> NetworkNamespaces() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::error_code error;
      const auto name = std::filesystem::read_symlink(entry.path() / "ns/net", error);
      if (!error) names.insert(name.string());
    }
    return names;
  }
};

TEST_P(KilledMemberTest, LeavesNothing) {
  const auto [link, role, name] = GetParam();
  const std::set<std::string> namespaces = NetworkNamespaces();
  const auto bench = Start({"--quick", "--link", link});
  std::vector<support::RunningProcess> members;
  const bool found = support::Eventually(2 * support::kPatienceSeconds, [&] {
    members = Children(bench->pid());
    const auto is_other = [&](const support::RunningProcess& member) {
      return member.ValueOf("--role") != role || bench->HasEnded() ||
             member.ValueOf("--case").find(link == "1gbit" ? "CAPPED" : "") == std::string::npos;
    };
    members.erase(std::remove_if(members.begin(), members.end(), is_other), members.end());
    return !members.empty() || bench->HasEnded();
  });
  ASSERT_TRUE(found);
  if (bench->HasEnded()) {
    const support::Ended ended = bench->Wait();
    ASSERT_EQ(link, "1gbit") << ended.err;
    ASSERT_EQ(ended.exit_code, 2) << ended.err;
    GTEST_SKIP() << "this machine makes no network namespaces";
  }
  const pid_t command = bench->pid();
  kill(name == "command" ? command : members[0].pid, SIGKILL);
  const support::Ended ended = bench->WaitWhileItWorks();
  if (name == "command") {
    EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
    EXPECT_TRUE(support::Eventually(support::kPatienceSeconds, [&] {
      return support::ProcessesMentioning("CAPPED").empty();
    })) << "a member is left";
  } else {
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    EXPECT_NE(ended.err.find(name), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("was killed by SIGKILL"), std::string::npos) << ended.err;
    EXPECT_TRUE(Children(command).empty());
  }
  EXPECT_TRUE(support::Eventually(support::kPatienceSeconds, [&] {
    for (const std::string& one : NetworkNamespaces()) {
      if (namespaces.count(one) == 0) return false;
    }
    return true;
  })) << "a network namespace is left";
}

INSTANTIATE_TEST_SUITE_P(Members, KilledMemberTest,
                         testing::Values(KilledMember{"tcp", "trainer", "trainer-"},
                                         KilledMember{"shm", "server", "ps-0"},
                                         KilledMember{"1gbit", "trainer", "trainer-"},
                                         KilledMember{"1gbit", "server", "ps-0"},
                                         KilledMember{"1gbit", "trainer", "command"}),
                         [](const auto& info) {
                           const KilledMember& killed = info.param;
                           const bool all = killed.name == "command";
                           return (all ? killed.name : killed.role) + "Over" + killed.link;
                         });

TEST_F(BenchSyncTest, SizesThatNoPointHasAreRefused) {
  const support::Ended ended = Start({"--bytes", "5"})->Wait();
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("--bytes is 5; allowed: 4096, "), std::string::npos) << ended.err;
}

// The programs ip, tc and nsenter are found by PATH.
TEST_F(BenchSyncTest, WithoutIpAndTcThePointsOfARateAreLeftOut) {
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/env", "PATH=/nowhere", TANDEM_BINARY, "bench", "sync"});
    return support::Process(folder_.path(), arguments).WaitWhileItWorks();
  };
  const support::Ended some =
      run({"--quick", "--link", "shm", "--link", "1gbit", "--bytes", "4096"});
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_NE(some.out.find("left out: points over 1gbit, because there is no program ip"),
            std::string::npos)
      << some.out;
  const support::Ended none = run({"--link", "1gbit"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("no point is left"), std::string::npos) << none.err;
}

TEST_F(BenchSyncTest, AReportIntoAMissingFolderIsRefusedBeforeMinutesAreSpent) {
  const std::string path = folder_ / "absent/sync.html";
  const support::Ended ended = Start({"--report", path})->Wait();
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("cannot write --report " + path), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
}

TEST_F(BenchSyncTest, AllLinksThatAreNoneAreToldBeforeAnythingStarts) {
  const support::Ended ended =
      Start({"--link", "fast", "--link", "7", "--bytes", "9", "--json", folder_ / "absent/x"})
          ->Wait();
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("--bytes is 9"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("cannot write --json"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("--link is fast; allowed: shm, tcp, or a rate"), std::string::npos);
  EXPECT_NE(ended.err.find("--link is 7; allowed"), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
}

}  // namespace
}  // namespace tandem::cluster
