// Parameters are equal bit for bit in one process and in five, with other numbers of threads and
// with merged pushes. Every loss takes part, and so do Adam, SGD and Adagrad. tests/trainer/loop
// compares more layouts in one process.
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

TEST_P(HashTest, FiveProcessesEqualTwoLocalReplicas) {
  const std::string local = Hash("local", {"--local", "--trainers", "2"});
  EXPECT_EQ(Hash("run", {"--ps", "2", "--trainers", "2"}), local);
  Arguments other{"--ps", "2", "--trainers", "2"};
  for (const char* set : {"runtime.threads=2", "ps.threads=2", "ps.merge_pushes=true"})
    other.insert(other.end(), {"--set", set});
  EXPECT_EQ(Hash("other", other), local);
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

TEST(ConsistencyTest, TwoTrainersAreAsFarApartAsTheModeAllows) {
  SmallJob job;
  // Dense layers keep trainers together. When one trainer begins a step, the other's commit of two
  // steps before may still be on its way.
  for (const auto& [mode, staleness, most] : {std::tuple("SSP", "1", 1), {"PERMIT", "3", 4}}) {
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

}  // namespace
}  // namespace tandem::cluster
