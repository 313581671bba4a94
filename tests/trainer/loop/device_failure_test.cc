// A device that fails at each place of a run in turn, or has too little memory: the run ends with
// the device's error.
// An older run in the folder stays until training begins. No evaluation, checkpoint or summary
// holds anything of the failed device.
// Runs on the emulated device.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>

#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/loop/train_loop.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem {

namespace cuda {
extern std::atomic<int> emulated_calls_before_failure;
extern std::atomic<int64_t> emulated_bytes_left, emulated_fewest_bytes_left;
}  // namespace cuda

namespace loop {
namespace {

constexpr int kNever = -1;
constexpr char kJob[] = R"(
data { path: "text" }
placement: PS
model { gpt { max_length: 8 layers: 1 heads: 1 dim: 8 } }
optimizer { max_grad_norm: 1 }
train { batch_size: 2 max_steps: 2 eval_every_steps: 2 precision: BF16 }
checkpoint { every_steps: 1 keep: 10 }
)";
// The last three steps are launched as graphs.
constexpr char kGraphJob[] = R"(
data { path: "text" }
model { gpt { max_length: 8 layers: 1 heads: 1 dim: 8 dropout: 0.2 } }
train { batch_size: 2 max_steps: 9 eval_every_steps: 9 precision: BF16 }
trace { steps: -1 }
)";

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

GptData SmallData(int valid_symbols) {
  data::Text text;
  text.vocabulary = data::Vocabulary(U" abcd");
  for (int i = 0; i < 60; ++i) text.train.push_back(i * i % 5);
  for (int i = 0; i < valid_symbols; ++i) text.valid.push_back(i * i % 5);
  return GptData({text});
}

struct Setting {
  const char* job = kJob;
  std::vector<std::string> sets = {};
  int valid_symbols = 20;
};

absl::StatusOr<report::RunSummary> Train(const std::string& out, int calls_before_failure,
                                         const Setting& setting = {},
                                         std::vector<int64_t>* launched = nullptr) {
  const auto job = ParseJob(setting.job, "job", setting.sets,
                            {.models = OurKinds().models(), .num_trainers = 1});
  EXPECT_TRUE(job.ok()) << job.status();
  testing::internal::CaptureStdout();
  const GptData data = SmallData(setting.valid_symbols);
  ps::TableHost host(1);
  ps::LocalClient client(host, 0, 1);
  const auto groups = comm::ThreadGroup::Create(1, "dp");
  auto output = report::RunOutput::Create(out, report::LogFormat::JSON);
  cuda::emulated_calls_before_failure = calls_before_failure;
  report::OnStep on_step([&](const report::StepRecord& record) {
    if (launched != nullptr && record.launched_graph) launched->push_back(record.step);
  });
  auto summary = RunReplica(*job, data,
                            {.group = groups[0].get(),
                             .clients = ps::ClientsOf(client),
                             .output = output->get(),
                             .device = {DeviceKind::CUDA, 0},
                             .compute = DType::BF16,
                             .observer = &on_step});
  cuda::emulated_calls_before_failure = kNever;
  testing::internal::GetCapturedStdout();
  return summary;
}

TEST(DeviceFailureTest, NothingOfAFailedDeviceIsKept) {
  const support::TempFolder folder;
  const auto whole = Train(folder / "whole", kNever);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::string evaluations = Read(folder / "whole/evaluations.jsonl");
  int calls = 0, refused = 0, with_checkpoint = 0;
  for (;; ++calls) {
    SCOPED_TRACE(calls);
    const std::string out = folder / std::to_string(calls);
    std::filesystem::create_directory(out);
    std::ofstream(out + "/summary.json") << "older";
    const auto summary = Train(out, calls);
    if (summary.ok()) {
      EXPECT_EQ(summary->params_hash, whole->params_hash);
      break;
    }
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kInternal) << summary.status();
    EXPECT_NE(summary.status().ToString().find("the emulated device failed"), std::string::npos)
        << summary.status();
    const bool begun = std::filesystem::exists(out + "/metrics.jsonl");
    refused += begun ? 0 : 1;
    EXPECT_EQ(Read(out + "/summary.json"), begun ? "" : "older");
    const std::string evaluated = Read(out + "/evaluations.jsonl");
    EXPECT_TRUE(evaluated.empty() || evaluated == evaluations) << evaluated;
    for (const std::string step : {"step-00000001", "step-00000002"}) {
      const std::string file = "/checkpoints/" + step + "/dense.safetensors";
      if (!std::filesystem::exists(out + file)) continue;
      ++with_checkpoint;
      EXPECT_EQ(Read(out + file), Read(folder / "whole" + file)) << step;
    }
    ASSERT_LT(calls, 10000);
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(with_checkpoint, 10);
  EXPECT_GT(calls, 100);
}

TEST(DeviceFailureTest, DeviceThatFailsUnderAGraphFailsTheRun) {
  const support::TempFolder folder;
  const auto whole = Train(folder / "out", kNever, {kGraphJob});
  ASSERT_TRUE(whole.ok()) << whole.status();
  int calls = 0;
  for (;; calls += 3) {
    SCOPED_TRACE(calls);
    const auto summary = Train(folder / "out", calls, {kGraphJob});
    if (summary.ok()) {
      EXPECT_EQ(summary->params_hash, whole->params_hash);
      break;
    }
    EXPECT_NE(summary.status().ToString().find("the emulated device failed"), std::string::npos)
        << summary.status();
    ASSERT_LT(calls, 10000);
  }
  EXPECT_GT(calls, 100);
}

constexpr int64_t kPlenty = int64_t{1} << 40;

// Trains on a device with `num_bytes` of memory, on a fresh thread that holds no memory of earlier
// runs. `used`, if given, gets the peak.
absl::StatusOr<report::RunSummary> TrainWithin(int64_t num_bytes, const std::string& out,
                                               int64_t* used = nullptr, const Setting& setting = {},
                                               std::vector<int64_t>* launched = nullptr) {
  absl::StatusOr<report::RunSummary> summary;
  cuda::emulated_bytes_left = cuda::emulated_fewest_bytes_left = num_bytes;
  std::thread([&] { summary = Train(out, kNever, setting, launched); }).join();
  if (used != nullptr) *used = num_bytes - cuda::emulated_fewest_bytes_left;
  cuda::emulated_bytes_left = -1;
  return summary;
}

TEST(DeviceFailureTest, ADeviceWithoutMemoryEndsTheRunAndNothingElse) {
  const support::TempFolder folder;
  int64_t needed = 0;
  const auto whole = TrainWithin(kPlenty, folder / "whole", &needed);
  ASSERT_TRUE(whole.ok()) << whole.status();
  constexpr int kRuns = 60;
  for (int run = 0; run < kRuns; ++run) {
    SCOPED_TRACE(run);
    const auto summary = TrainWithin(needed * 9 / 10 * run / kRuns, folder / std::to_string(run));
    ASSERT_FALSE(summary.ok());
    EXPECT_EQ(summary.status().code(), absl::StatusCode::kResourceExhausted) << summary.status();
    EXPECT_NE(summary.status().ToString().find("memory"), std::string::npos) << summary.status();
    EXPECT_FALSE(
        std::filesystem::exists(folder / (std::to_string(run) + "/checkpoints/step-00000002")));
  }
  const auto enough = TrainWithin(needed, folder / "enough");
  ASSERT_TRUE(enough.ok()) << enough.status();
  EXPECT_EQ(enough->params_hash, whole->params_hash);
}

TEST(DeviceFailureTest, AGraphGivesItsMemoryBackToAnEvaluationThatNeedsIt) {
#ifdef TANDEM_SANITIZED
  GTEST_SKIP() << "memory comes from the sanitizer, which keeps no idle blocks";
#endif
  const support::TempFolder folder;
  const Setting with_graphs{
      kGraphJob, {"train.max_steps=20", "train.eval_every_steps=10", "train.batch_size=64"}, 300};
  Setting without_graphs = with_graphs;
  without_graphs.sets.push_back("runtime.cuda_graphs=false");
  int64_t used_without = 0, used_with = 0;
  std::vector<int64_t> launched, launched_tightly;
  const auto without = TrainWithin(kPlenty, folder / "without", &used_without, without_graphs);
  const auto with = TrainWithin(kPlenty, folder / "with", &used_with, with_graphs, &launched);
  ASSERT_TRUE(with.ok() && without.ok()) << with.status() << without.status();
  ASSERT_GT(used_with, used_without) << "the evaluation would have had room";
  const int64_t little_more = used_without + (used_with - used_without) / 4;
  const auto tight =
      TrainWithin(little_more, folder / "tight", nullptr, with_graphs, &launched_tightly);
  ASSERT_TRUE(tight.ok()) << tight.status();
  EXPECT_EQ(tight->params_hash, without->params_hash);
  EXPECT_GT(launched.size(), 10u);
  EXPECT_EQ(launched_tightly, launched);  // recorded anew at once
}

}  // namespace
}  // namespace loop
}  // namespace tandem
