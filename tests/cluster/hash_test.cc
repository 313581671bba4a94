// Parameters are equal bit for bit however the job is spread over servers, processes and threads.
// Parameters differ as soon as any setting that matters differs. Every loss and every sparse
// optimizer takes part.
#include <filesystem>
#include <gtest/gtest.h>
#include <ostream>
#include <tuple>

#include "tests/cluster/small_job.h"

namespace tandem::cluster {
namespace {

struct Recipe {
  const char* name;
  Arguments arguments;
};

void PrintTo(const Recipe& recipe, std::ostream* out) { *out << recipe.name; }

class HashTest : public testing::TestWithParam<Recipe> {
 protected:
  std::string Hash(const std::string& out, Arguments more) {
    more.insert(more.begin(), GetParam().arguments.begin(), GetParam().arguments.end());
    return job_.HashOf(out, more);
  }
  SmallJob job_;
};

TEST_P(HashTest, OneTrainerWithAnyNumberOfServersEqualsLocal) {
  const std::string local = Hash("local", {"--local"});
  for (const char* servers : {"1", "2", "4"})
    EXPECT_EQ(Hash(std::string("run") + servers, {"--ps", servers}), local) << servers << " PS";
}

TEST_P(HashTest, TwoTrainersEqualTwoLocalReplicas) {
  const std::string local = Hash("local", {"--local", "--trainers", "2"});
  EXPECT_EQ(Hash("run", {"--ps", "2", "--trainers", "2"}), local);
  EXPECT_EQ(Hash("again", {"--ps", "2", "--trainers", "2"}), local);
  EXPECT_EQ(Hash("merged", {"--ps", "2", "--trainers", "2", "--set", "ps.merge_pushes=true"}),
            local);
}

TEST_P(HashTest, ThreadsDoNotMatter) {
  const std::string one = Hash("one", {"--ps", "2", "--trainers", "2"});
  const Arguments two{"--ps",  "2",           "--trainers", "2", "--set", "runtime.threads=2",
                      "--set", "ps.threads=2"};
  EXPECT_EQ(Hash("two", two), one);
  const std::string local = Hash("local", {"--local"});
  EXPECT_EQ(Hash("local-two", {"--local", "--set", "runtime.threads=2", "--set", "ps.threads=2"}),
            local);
}

TEST_P(HashTest, AnotherSeedOrOneStepLessDiffers) {
  const std::string reference = Hash("reference", {"--local"});
  EXPECT_NE(Hash("seed", {"--local", "--set", "seed=1"}), reference);
  EXPECT_NE(Hash("steps", {"--local", "--set", "train.max_steps=19"}), reference);
}

Arguments Set(const std::vector<std::string>& assignments) {
  Arguments arguments;
  for (const std::string& assignment : assignments)
    arguments.insert(arguments.end(), {"--set", assignment});
  return arguments;
}

const std::string kLoss = "model.sequence_rec.loss=";

INSTANTIATE_TEST_SUITE_P(
    Recipes, HashTest,
    testing::Values(Recipe{"BceAdam", Set({kLoss + "BCE"})},
                    Recipe{"SampledSoftmaxClippedAccumulatedSgd",
                           Set({kLoss + "SAMPLED_SOFTMAX", "model.sequence_rec.num_negatives=33",
                                "optimizer.max_grad_norm=0.5", "train.accumulate=2",
                                "tables[item].optimizer=SGD"})},
                    Recipe{"FullSoftmaxAdagrad",
                           Set({kLoss + "FULL_SOFTMAX", "tables[item].optimizer=ADAGRAD",
                                "optimizer.kind=ADAMW", "optimizer.weight_decay=0.01"})}),
    [](const auto& info) { return info.param.name; });

// Without other trainers no row is stale, unless rows are pulled before own updates. The modes'
// servers count and apply as BSP's do.
TEST(ConsistencyTest, OneTrainersBitsAreThoseOfBspOverServersToo) {
  SmallJob job;
  const std::string bsp = job.HashOf("bsp", {"--local"});
  for (const std::vector<std::string>& mode :
       {std::vector<std::string>{"ps.consistency=SSP", "ps.staleness=2"},
        {"ps.consistency=PERMIT", "ps.staleness=1"}}) {
    Arguments arguments{"--ps", "2"};
    for (const std::string& set : mode) arguments.insert(arguments.end(), {"--set", set});
    EXPECT_EQ(job.HashOf("run", arguments), bsp) << mode[0];
    std::filesystem::remove_all(job.Path("run"));
  }
}

TEST(ConsistencyTest, TwoTrainersAreAsFarApartAsTheModeAllows) {
  SmallJob job;
  // Dense layers keep trainers together. When one trainer begins a step, the other's commit of two
  // steps before may still be on its way.
  for (const auto& [mode, staleness, most] :
       {std::tuple("SSP", "0", 0), {"SSP", "1", 1}, {"ASP", "0", 2}, {"PERMIT", "3", 4}}) {
    SCOPED_TRACE(mode);
    const std::string consistency = std::string("ps.consistency=") + mode,
                      bound = std::string("ps.staleness=") + staleness;
    job.HashOf("run", {"--ps", "2", "--trainers", "2", "--set", consistency, "--set", bound});
    int found = 0;
    for (int steps = 0; steps <= 17; ++steps) {
      if (job.Read("run/metrics.jsonl").find("\"staleness\":" + std::to_string(steps)) !=
          std::string::npos)
        found = steps;
    }
    EXPECT_LE(found, most);
    EXPECT_TRUE(found >= 2 || most < 4) << "PERMIT pulls ahead";
    std::filesystem::remove_all(job.Path("run"));
  }
}

// The samples of a step are summed in another order, so bits may differ. Losses must not.
TEST(LossTest, OneReplicaAndTwoByTwoAgreeOverAHundredSteps) {
  SmallJob job;
  const Arguments steps{"--set", "train.max_steps=100"};
  const Arguments two_by_two{"--set", "train.max_steps=100", "--ps", "2", "--trainers", "2"};
  Arguments local = steps;
  local.push_back("--local");
  job.HashOf("local", local);
  job.HashOf("run", two_by_two);
  const std::vector<double> expected = job.Losses("local"), found = job.Losses("run");
  ASSERT_EQ(expected.size(), 100u);
  ASSERT_EQ(found.size(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_NEAR(found[i] / expected[i], 1, 1e-5) << "step " << i + 1;
  EXPECT_NE(expected.front(), expected.back());
}

}  // namespace
}  // namespace tandem::cluster
