// A Llama cut over ranks that compute on a CUDA device, compared with one process on the CPU. Ranks
// are threads. Their arrays meet in a device group: through host memory, or over NCCL if each rank
// has its own GPU or all is emulated.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/trainer/loop/device_ranks.h"
#include "tests/trainer/loop/small_text.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/job/job_config.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::loop {
namespace {

// Windows of 7 symbols, so that ranks share rows unevenly.
constexpr char kJob[] = R"(
data { path: "text" }
model { llama { max_length: 7 layers: 2 heads: 4 kv_heads: 2 dim: 32 ffn_dim: 24 dropout: 0.1
                init_stddev: 0.1 } }
optimizer { kind: SGD learning_rate: 0.3 max_grad_norm: 2 }
train { batch_size: 6 max_steps: 5 log_every_steps: 1 eval_every_steps: 5 precision: F32 }
placement: REPLICATED
)";

struct Layout {
  int dp = 1, tp = 1, zero = 0;
  bool cut_rows = true;
  int pp = 1;
  const char* schedule = "ONE_F_ONE_B";
  const char* recompute = "NONE";
};

struct Result {
  std::vector<double> losses, norms;
  double valid_loss = 0;
};

Result Train(const Layout& layout, const std::vector<std::string>& sets) {
  const int size = layout.dp * layout.tp * layout.pp;
  std::vector<std::string> all = sets;
  all.push_back(absl::StrCat("parallel.tp=", layout.tp));
  all.push_back(absl::StrCat("parallel.zero=", layout.zero));
  if (layout.tp > 1 && !layout.cut_rows) all.push_back("parallel.sequence_parallel=false");
  if (layout.pp > 1) {
    all.insert(all.end(), {absl::StrCat("parallel.pp=", layout.pp), "parallel.microbatches=3",
                           absl::StrCat("parallel.schedule=", layout.schedule),
                           absl::StrCat("parallel.recompute=", layout.recompute)});
  }
  const auto job =
      ParseJob(kJob, "job", all, {.models = OurKinds().models(), .num_trainers = size});
  EXPECT_TRUE(job.ok()) << job.status();
  const LlamaData data(tasks::TextFile{SmallText()});
  Result result;
  const report::RunSummary summary =
      RunOnDevices(*job, data, size, [&](const report::StepRecord& record) {
        result.losses.push_back(record.loss);
        result.norms.push_back(record.grad_norm);
      });
  if (!summary.metrics.empty()) result.valid_loss = summary.metrics.at("valid/loss");
  return result;
}

// NCCL wants a GPU for each rank.
std::vector<std::string> Transports() {
#ifndef TANDEM_CUDA_EMULATOR
  if (QueryCuda().num_devices < 4) return {"parallel.transport=HOST"};
#endif
  return {"parallel.transport=HOST", "parallel.transport=NCCL"};
}

class CudaLayoutsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaInfo info = QueryCuda();
    if (info.num_devices == 0) GTEST_SKIP() << info.why_none;
  }

  void ExpectNear(const Result& result, const Result& expected, double tolerance) {
    ASSERT_EQ(result.losses.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(result.losses[i] / expected.losses[i], 1, tolerance) << "step " << i + 1;
      EXPECT_NEAR(result.norms[i] / expected.norms[i], 1, 10 * tolerance) << "step " << i + 1;
    }
    EXPECT_NEAR(result.valid_loss / expected.valid_loss, 1, tolerance);
  }
};

TEST_F(CudaLayoutsTest, EveryLayoutGivesTheLossesOfOneProcessOnTheCpu) {
  const Result cpu = Train({}, {"device=CPU"});
  ASSERT_EQ(cpu.losses.size(), 5u);
  EXPECT_LT(cpu.losses.back(), cpu.losses.front());
  ExpectNear(Train({}, {"device=CUDA"}), cpu, 1e-5);
  for (const std::string& transport : Transports()) {
    for (const Layout& layout : std::vector<Layout>{{.tp = 2},
                                                    {.tp = 2, .cut_rows = false},
                                                    {.tp = 4},
                                                    {.dp = 2, .tp = 2, .zero = 1},
                                                    {.dp = 3, .zero = 2},
                                                    {.dp = 2, .tp = 2, .zero = 3},
                                                    {.pp = 2, .schedule = "ZB_H1"},
                                                    {.tp = 2, .pp = 2, .recompute = "FULL"},
                                                    {.dp = 2, .zero = 1, .pp = 2}}) {
      SCOPED_TRACE(testing::Message() << transport << ", dp " << layout.dp << " tp " << layout.tp
                                      << " zero " << layout.zero << " pp " << layout.pp);
      ExpectNear(Train(layout, {"device=CUDA", transport}), cpu, 1e-5);
    }
  }
}

// Products in bf16 leave losses near those of f32.
TEST_F(CudaLayoutsTest, ACutModelTrainsInBf16) {
  const Result cpu = Train({}, {"device=CPU"});
  for (const Layout& layout :
       std::vector<Layout>{{.tp = 2}, {.dp = 2, .tp = 2, .zero = 3}, {.tp = 2, .pp = 2}}) {
    const std::vector<std::string> sets{"device=CUDA", "parallel.transport=HOST",
                                        "train.precision=BF16"};
    ExpectNear(Train(layout, sets), cpu, 1e-2);
  }
}

}  // namespace
}  // namespace tandem::loop
