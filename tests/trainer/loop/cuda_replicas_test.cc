// Two replicas whose gradients meet in a device group, compared with two replicas on the CPU and
// with one replica.
// Uses host memory on any machine with a GPU, which the replicas share. Uses NCCL if each has its
// own GPU or all is emulated.
#include <gtest/gtest.h>

#include "tests/trainer/loop/device_ranks.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_config.h"
#include "trainer/tasks/ranking/sequence_data.h"

namespace tandem::loop {
namespace {

constexpr char kJob[] = R"(
data { path: "log" }
model { sequence_rec { max_length: 8 layers: 2 heads: 2 ffn_dim: 16 dropout: 0.2 init_stddev: 0.1 num_negatives: 8 } }
tables { name: "item" dim: 16 learning_rate: 1e-2 init_stddev: 0.1 }
optimizer { kind: ADAM learning_rate: 1e-2 max_grad_norm: 1 }
train { batch_size: 12 max_steps: 6 eval_every_steps: 6 }
)";

// Users with equal numbers of items give steps of equal shapes. Gradients exceed the megabyte that
// fills a first bucket.
constexpr char kEvenJob[] = R"(
data { path: "log" }
placement: REPLICATED
model { sequence_rec { max_length: 8 layers: 1 heads: 2 ffn_dim: 9000 dropout: 0.2 init_stddev: 0.1 num_negatives: 8 } }
tables { name: "item" dim: 16 learning_rate: 1e-2 init_stddev: 0.1 }
optimizer { kind: ADAM learning_rate: 1e-2 max_grad_norm: 1 }
train { batch_size: 2 max_steps: 11 eval_every_steps: 11 }
)";

struct Result {
  std::vector<double> losses;
  std::vector<int64_t> launched;  // steps whose passes were a graph, of replica 0
  decltype(report::RunSummary::params_hash) params_hash = {};
  std::map<std::string, double> metrics;
};

class CudaReplicasTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
  }

  // Returns replica 0's result. The run fails unless all replicas end alike.
  Result Run(int size, std::vector<std::string> sets) {
    return Run(kJob, {.seed = 5, .users = 30, .items = 30, .min_length = 3, .max_length = 12}, size,
               sets);
  }
  Result RunEven(int size, std::vector<std::string> sets) {
    return Run(kEvenJob, {.seed = 5, .users = 20, .items = 30, .min_length = 9, .max_length = 9},
               size, sets);
  }
  Result Run(const char* text, const data::SyntheticOptions& users, int size,
             const std::vector<std::string>& sets) {
    const auto job =
        ParseJob(text, "job", sets, {.models = OurKinds().models(), .num_trainers = size});
    EXPECT_TRUE(job.ok()) << job.status();
    const SequenceRecData data({.interactions = data::Generate(users).log, .path = "log"});
    Result result;
    const report::RunSummary summary =
        RunOnDevices(*job, data, size, [&](const report::StepRecord& record) {
          result.losses.push_back(record.loss);
          if (record.launched_graph) result.launched.push_back(record.step);
        });
    result.params_hash = summary.params_hash;
    result.metrics = summary.metrics;
    return result;
  }

  void ExpectNear(const Result& result, const Result& expected, double tolerance) {
    ASSERT_EQ(result.losses.size(), 6u);
    ASSERT_EQ(expected.losses.size(), 6u);
    for (size_t i = 0; i < 6; ++i)
      EXPECT_NEAR(result.losses[i] / expected.losses[i], 1, tolerance) << "step " << i + 1;
    EXPECT_NE(result.losses.front(), result.losses.back());
  }
  // NCCL wants a GPU for each replica.
  static std::vector<std::string> Transports() {
#ifndef TANDEM_CUDA_EMULATOR
    if (QueryCuda().num_devices < 2) return {"parallel.transport=HOST"};
#endif
    return {"parallel.transport=HOST", "parallel.transport=NCCL"};
  }
};

TEST_F(CudaReplicasTest, TwoTrainAsOneAndAsOnTheCpuOverEveryTransport) {
  for (const std::string place : {"placement=PS", "placement=REPLICATED"}) {
    SCOPED_TRACE(place);
    const Result cpu = Run(2, {"device=CPU", place}), one = Run(1, {"device=CUDA", place});
    std::vector<Result> runs;
    for (const std::string& transport : Transports()) {
      SCOPED_TRACE(transport);
      const std::vector<std::string> sets{"device=CUDA", transport, place};
      const Result two = Run(2, sets), again = Run(2, sets);
      ExpectNear(two, cpu, 2e-5);
      ExpectNear(two, one, 2e-5);
      EXPECT_EQ(two.losses, again.losses);
      EXPECT_EQ(two.params_hash, again.params_hash);
      EXPECT_EQ(two.metrics, again.metrics);
      runs.push_back(two);
      EXPECT_EQ(runs[0].params_hash, two.params_hash) << "two addends have one sum";
    }
  }
}

// The steps of two replicas are graphs in parts, with all-reduces between the parts.
TEST_F(CudaReplicasTest, StepsLaunchedAsGraphsHaveTheBitsOfOthersOverEveryTransport) {
  const Result without =
      RunEven(2, {"device=CUDA", "parallel.transport=HOST", "runtime.cuda_graphs=false"});
  EXPECT_EQ(without.launched, std::vector<int64_t>());
  EXPECT_NE(without.losses[8], without.losses[10]);
  for (const std::string& transport : Transports()) {
    SCOPED_TRACE(transport);
    const Result with = RunEven(2, {"device=CUDA", transport});
    // Six steps come before the recording, beside the traced fifth and sixth.
    EXPECT_EQ(with.launched, (std::vector<int64_t>{9, 10, 11}));
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(with.params_hash, without.params_hash);
    EXPECT_EQ(with.metrics, without.metrics);
  }
}

// With ZeRO 1 graphs have reduce-scatters between their parts, and weights are gathered after a
// step. From stage 2 on there are no graphs. In stage 3 buckets have other places in a sum's order,
// which two addends do not show.
TEST_F(CudaReplicasTest, ZeroHasTheBitsOfWholeMomentsWithAndWithoutGraphs) {
  for (const std::string& transport : Transports()) {
    SCOPED_TRACE(transport);
    const std::vector<std::string> sets{"device=CUDA", transport, "optimizer.max_grad_norm=0"};
    const Result whole = RunEven(2, sets);
    for (const std::vector<std::string>& added :
         std::vector<std::vector<std::string>>{{"parallel.zero=1", "runtime.cuda_graphs=false"},
                                               {"parallel.zero=1", "runtime.cuda_graphs=true"},
                                               {"parallel.zero=2"},
                                               {"parallel.zero=3"}}) {
      SCOPED_TRACE(added[0]);
      std::vector<std::string> cut = sets;
      cut.insert(cut.end(), added.begin(), added.end());
      const Result zero = RunEven(2, cut);
      EXPECT_EQ(zero.losses, whole.losses);
      EXPECT_EQ(zero.params_hash, whole.params_hash);
      EXPECT_EQ(zero.metrics, whole.metrics);
    }
  }
}

}  // namespace
}  // namespace tandem::loop
