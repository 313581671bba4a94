// `tandem bench store` as a user runs it: its figures are JSON. The command refuses a size for
// which the machine has too little memory.
#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace tandem::cluster {
namespace {

class BenchStoreTest : public testing::Test {
 protected:
  support::Ended Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {TANDEM_BINARY, "bench", "store", "--json", json_, "--repetitions", "1"});
    return support::Process(folder_.path(), arguments).WaitWhileItWorks();
  }
  std::string Json() const {
    std::ifstream file(json_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const support::TempFolder folder_;
  const std::string json_ = folder_ / "bench.json";
};

TEST_F(BenchStoreTest, EveryOperationIsMeasuredCheckedAndWritten) {
  const support::Ended ended = Run({"--rows", "20000", "--dim", "7"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_EQ(ended.out.find("FAIL"), std::string::npos) << ended.out;
  const std::string json = Json();
  size_t at = 0;
  for (const char* op : {"gather", "sgd", "adagrad"}) {
    for (const char* ids : {"uniform", "zipf"}) {
      at = json.find("{\"op\"", at);
      ASSERT_NE(at, std::string::npos) << json;
      const std::string format =
          std::string("{\"op\":\"") + op + "\",\"ids\":\"" + ids +
          "\",\"dim\":7,\"rows\":20000,\"storage\":\"f32\",\"rows_per_second\":%lf,"
          "\"ceiling_rows_per_second\":%lf,\"ratio\":%lf";
      double rows = 0, ceiling = 0, ratio = 0;
      ASSERT_EQ(std::sscanf(json.c_str() + at, format.c_str(), &rows, &ceiling, &ratio), 3)
          << json.substr(at, 300);
      EXPECT_GT(rows, 0);
      EXPECT_GT(ceiling, 0);
      EXPECT_NEAR(ratio, rows / ceiling, 1e-3 * ratio);
      ++at;
    }
  }
  EXPECT_EQ(json.find("false"), std::string::npos) << json;
}

TEST_F(BenchStoreTest, ATableGrowsToTheMemoryThatItIsGiven) {
  const support::Ended ended = Run({"--op", "grow", "--memory", "0.05"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  const std::string json = Json();
  unsigned long long rows = 0;
  ASSERT_EQ(std::sscanf(json.c_str(),
                        "[\n{\"op\":\"grow\",\"ids\":\"new\",\"dim\":16,\"rows\":%llu,", &rows),
            1)
      << json;
  EXPECT_GT(rows, 400000u);  // rows with 60 bytes of fields
  EXPECT_LT(rows, 800000u);
  EXPECT_NE(json.find("\"field_bytes\":60,"), std::string::npos) << json;
}

TEST_F(BenchStoreTest, MoreThanTheMachineHasIsRefused) {
  using Arguments = std::vector<std::string>;
  for (const Arguments& asked :
       {Arguments{"--op", "grow", "--memory", "1000000"},
        Arguments{"--op", "gather", "--rows", "4000000000", "--dim", "65536"}}) {
    const support::Ended ended = Run(asked);
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_NE(ended.err.find("of memory; this machine has"), std::string::npos) << ended.err;
  }
}

}  // namespace
}  // namespace tandem::cluster
