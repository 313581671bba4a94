// `tandem plan` as a user runs it: a plan with its costs, and wrong flags.
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

class PlanCommandTest : public testing::Test {
 protected:
  support::Ended Plan(const Arguments& more) {
    Arguments arguments{"plan", job_.job_path(), "--set", "data.path=" + job_.log_path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return job_.Run(arguments);
  }
  SmallJob job_;
};

TEST_F(PlanCommandTest, EveryParameterHasAWayAndAReason) {
  const std::string path = job_.Path("plan.json");
  const support::Ended ended = Plan({"--ps", "1", "--trainers", "2", "--json", path});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out.find("Typical costs, not this machine's"), 0u) << ended.out;
  const auto plan = nlohmann::json::parse(std::ifstream(path));
  int tables = 0;
  for (const auto& parameter : plan["parameters"]) {
    tables += parameter["kind"] == "table" ? 1 : 0;
    const bool ring = parameter["cheaper"] == "ring";
    EXPECT_EQ(ring, parameter["ring_ms"] <= parameter["ps_ms"]) << parameter;
    EXPECT_GT(parameter["bytes"], 0) << parameter;
    EXPECT_NE(parameter["reason"], "") << parameter;
    EXPECT_NE(ended.out.find(parameter["reason"].get<std::string>()), std::string::npos);
  }
  EXPECT_EQ(tables, 1);
  EXPECT_LE(plan["step_ms"]["planned"], plan["step_ms"]["hybrid"]);
  EXPECT_LE(plan["step_ms"]["planned"], plan["step_ms"]["all_ring"]);
}

TEST_F(PlanCommandTest, MeasuredCostsAreReadBack) {
  const std::string path = job_.Path("costs");
  const support::Ended measured = Plan({"--measure", "--write-profile", path});
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(measured.out.find("Costs measured now by "), 0u) << measured.out;
  const support::Ended read = Plan({"--profile", path});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(read.err, "");
  const std::string table = "\n  parameter";
  EXPECT_EQ(read.out.substr(read.out.find(table)), measured.out.substr(measured.out.find(table)));

  std::string text = job_.Read("costs");
  const std::string machine = "machine: \"";
  text.replace(text.find(machine), machine.size(), machine + "Other ");
  const support::Ended other = Plan({"--profile", job_.Write("other", text)});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_NE(other.err.find("is of another machine: Other "), std::string::npos) << other.err;
}

TEST_F(PlanCommandTest, WrongFlagsAreToldAtOnce) {
  const support::Ended ended =
      Plan({"--ps", "-1", "--trainers", "1025", "--link", "fast", "--measure", "--profile", "x",
            "--json", job_.Path("absent/plan.json")});
  EXPECT_EQ(ended.exit_code, 2);
  for (const char* const error :
       {"--ps is -1; allowed: ", "--trainers is 1025; allowed: 1 .. 1024",
        "--link is fast; allowed: ", "--measure and --profile exclude each other",
        "cannot write --json"})
    EXPECT_NE(ended.err.find(error), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
}

TEST_F(PlanCommandTest, APlacementOnServersNeedsAServer) {
  const support::Ended none = Plan({"--ps", "0", "--set", "placement=PS"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("--ps is 0, but placement is PS; allowed: --ps of at least 1"),
            std::string::npos)
      << none.err;
  const support::Ended ring = Plan({"--ps", "0", "--set", "placement=REPLICATED"});
  EXPECT_EQ(ring.exit_code, 0) << ring.err;
}

TEST_F(PlanCommandTest, ADamagedProfileIsRefused) {
  const support::Ended ended =
      Plan({"--profile", job_.Write("costs", "update_ns_per_byte: x\napply_ns_per_byte: -1\n")});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_NE(ended.err.find("is damaged"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("costs:1:"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("apply_ns_per_byte is -1"), std::string::npos) << ended.err;
}

}  // namespace
}  // namespace tandem::cluster
