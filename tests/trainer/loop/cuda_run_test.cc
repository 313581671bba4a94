// Whole runs on a CUDA device beside the same runs on the CPU: one loop, the same models. On a GPU (label gpu), and on the emulated
// device everywhere.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/device.h"
#include "ps/client_local.h"
#include "ps/table_host.h"
#include "tests/support/temp_folder.h"
#include "trainer/cli/job_config.h"
#include "trainer/comm/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/loop/sequence_data.h"
#include "trainer/loop/text_data.h"
#include "trainer/loop/train_loop.h"

namespace tandem::loop {
namespace {

constexpr char kLanguageJob[] = R"(
data { path: "text" }
model { gpt { max_length: 16 layers: 1 heads: 2 dim: 32 dropout: 0.1 norm_bias: true linear_bias: true } }
optimizer { kind: ADAMW learning_rate: 1e-2 weight_decay: 0.01 max_grad_norm: 1 }
train { batch_size: 3 max_steps: 5 eval_every_steps: 5 }
)";

constexpr char kSequenceJob[] = R"(
data { path: "log" }
model { sequence_rec { max_length: 8 layers: 1 heads: 2 ffn_dim: 16 dropout: 0.2 init_stddev: 0.1 num_negatives: 8 } }
tables { name: "item" dim: 16 learning_rate: 1e-2 init_stddev: 0.1 }
optimizer { kind: ADAM learning_rate: 1e-2 }
train { batch_size: 12 max_steps: 4 eval_every_steps: 4 }
)";

data::Text SmallText() {
  data::Text text;
  text.vocabulary = data::Vocabulary(U" .acdeghimnost");
  for (uint64_t i = 0; i < 700; ++i) text.train.push_back(static_cast<int32_t>(RandomBelow({1, 2}, 0, i, 3) + i % 11));
  text.valid.assign(text.train.end() - 100, text.train.end());
  text.train.resize(600);
  return text;
}

struct Result {
  RunSummary summary;
  std::vector<double> losses;
};

class CudaRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
  }

  Result Run(const char* text, const JobData& data, std::vector<std::string> sets, const char* device) {
    sets.push_back(std::string("device=") + device);
    const auto job = ParseJob(text, "job", sets, {.num_trainers = 1});
    EXPECT_TRUE(job.ok()) << job.status();
    const support::TempFolder folder;
    testing::internal::CaptureStdout();
    auto output = RunOutput::Create(folder.path() + "/out", LogFormat::JSON);
    ps::TableHost host(1);
    ps::LocalClient client(host, 0, 1);
    const auto groups = comm::ThreadGroup::Create(1, "dp");
    Result result;
    ReplicaEnvironment environment;
    environment.group = groups[0].get();
    environment.client = &client;
    environment.output = output->get();
    environment.compute = DType::F32;
    if (!bf16_.empty()) environment.compute = DType::BF16;
    environment.on_step = [&](const StepRecord& record) { result.losses.push_back(record.loss); };
    const auto summary = RunReplica(*job, data, environment);
    testing::internal::GetCapturedStdout();
    EXPECT_TRUE(summary.ok()) << summary.status();
    if (summary.ok()) result.summary = *summary;
    return result;
  }

  // The losses of every step, and the figures of the evaluation, within `tolerance` of the CPU's; two runs alike to the bit.
  void ExpectLikeCpu(const char* text, const JobData& data, const std::vector<std::string>& sets, double tolerance) {
    const Result cpu = Run(text, data, sets, "CPU"), cuda = Run(text, data, sets, "CUDA"), again = Run(text, data, sets, "CUDA");
    ASSERT_EQ(cuda.losses.size(), cpu.losses.size());
    for (size_t i = 0; i < cpu.losses.size(); ++i) EXPECT_NEAR(cuda.losses[i] / cpu.losses[i], 1, tolerance) << "step " << i + 1;
    EXPECT_NE(cpu.losses.front(), cpu.losses.back());
    EXPECT_EQ(cuda.losses, again.losses);
    EXPECT_EQ(cuda.summary.params_hash, again.summary.params_hash);
    ASSERT_FALSE(cpu.summary.metrics.empty());
    for (const auto& [name, value] : cpu.summary.metrics) {
      EXPECT_NEAR(cuda.summary.metrics.at(name), value, 0.02 + tolerance * std::abs(value)) << name;
    }
  }

  std::string bf16_;
};

TEST_F(CudaRunTest, LanguageModelTrainsAsOnTheCpu) { ExpectLikeCpu(kLanguageJob, TextData(SmallText()), {}, 2e-5); }

TEST_F(CudaRunTest, LanguageModelInBf16TrainsAsOnTheCpu) {
  bf16_ = "BF16";
  ExpectLikeCpu(kLanguageJob, TextData(SmallText()), {"train.precision=BF16"}, 2e-2);
}

TEST_F(CudaRunTest, TokenRowsOnServersAndAccumulationTrainAsOnTheCpu) {
  ExpectLikeCpu(kLanguageJob, TextData(SmallText()), {"placement=PS", "train.accumulate=3"}, 2e-5);
}

TEST_F(CudaRunTest, RecommenderTrainsAsOnTheCpuWithEveryLoss) {
  const SequenceData data{data::Generate({.seed = 5, .users = 30, .items = 30, .min_length = 3, .max_length = 12}).log, nullptr, "log"};
  for (const char* loss : {"BCE", "SAMPLED_SOFTMAX", "FULL_SOFTMAX"}) {
    for (const char* placement : {"PS", "REPLICATED"}) {
      SCOPED_TRACE(std::string(loss) + " " + placement);
      ExpectLikeCpu(kSequenceJob, data, {std::string("model.sequence_rec.loss=") + loss, std::string("placement=") + placement}, 2e-5);
    }
  }
}

}  // namespace
}  // namespace tandem::loop
