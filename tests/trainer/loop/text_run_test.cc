// Whole runs of a small language model through the training loop: layouts, threads, precision and
// placement.
#include <cmath>
#include <gtest/gtest.h>
#include <thread>

#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/loop/small_text.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/loop/train_loop.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::loop {
namespace {

constexpr char kJob[] = R"(
data { path: "text" }
model { gpt { max_length: 16 layers: 2 heads: 2 dim: 32 norm_bias: true linear_bias: true } }
optimizer { kind: ADAMW learning_rate: 3e-3 weight_decay: 0.01 }
train { batch_size: 6 max_steps: 30 eval_every_steps: 30 }
)";

struct Result {
  report::RunSummary summary;
  std::vector<double> losses;
};

struct RunArgs {
  int replicas = 1;
  std::optional<DType> compute = std::nullopt;
  std::string out = "";  // where checkpoints go; "": none
  const checkpoint::Checkpoint* resume = nullptr;
  int stop_after = -1;  // steps of this process
};

Result Train(const std::vector<std::string>& sets, const RunArgs& args) {
  const auto job =
      ParseJob(kJob, "job", sets, {.models = OurKinds().models(), .num_trainers = args.replicas});
  EXPECT_TRUE(job.ok()) << job.status();
  const GptData data({SmallText()});
  std::unique_ptr<report::RunOutput> output;
  if (!args.out.empty())
    output = report::RunOutput::Create(args.out, report::LogFormat::JSON).value();
  ps::TableHost host(1);
  const auto groups = comm::ThreadGroup::Create(args.replicas, "dp");
  Result result;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < args.replicas; ++rank) {
    threads.emplace_back([&, rank] {
      ps::LocalClient client(host, static_cast<uint32_t>(rank),
                             static_cast<uint32_t>(args.replicas));
      int asked = 0;
      ReplicaEnvironment environment;
      environment.resume = args.resume;
      environment.group = groups[rank].get();
      environment.clients = ps::ClientsOf(client);
      environment.output = rank == 0 ? output.get() : nullptr;
      environment.stop_requested = [&] { return ++asked == args.stop_after; };
      environment.compute = args.compute;
      report::OnStep on_step(
          [&](const report::StepRecord& record) { result.losses.push_back(record.loss); });
      if (rank == 0) environment.observer = &on_step;
      const auto summary = RunReplica(*job, data, environment);
      ASSERT_TRUE(summary.ok()) << summary.status();
      if (rank == 0) result.summary = *summary;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

Result Train(const std::vector<std::string>& sets, int replicas) {
  return Train(sets, RunArgs{.replicas = replicas});
}

double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] / b[i] - 1));
  return largest;
}

TEST(TextRunTest, LearnsAndReplicasAgreeWithOne) {
  for (const char* placement : {"placement=REPLICATED", "placement=PS"}) {
    const Result one = Train({placement}, 1), three = Train({placement}, 3);
    EXPECT_LT(one.losses.back(), 0.8 * one.losses.front());
    EXPECT_LT(LargestDifference(one.losses, three.losses), 1e-5);
    EXPECT_NEAR(one.summary.metrics.at("valid/loss"), three.summary.metrics.at("valid/loss"), 1e-5);
  }
}

TEST(TextRunTest, AccumulationAndThreadsKeepTheLoss) {
  const Result one = Train({}, 1);
  EXPECT_EQ(Train({"runtime.threads=3"}, 1).losses, one.losses);
  EXPECT_LT(LargestDifference(Train({"train.accumulate=3"}, 1).losses, one.losses), 1e-5);
}

// Names each type, so that no measurement at the start chooses one.
// Processors without a bf16 product widen its operands, which are rounded all the same.
const std::vector<std::string> kBf16{"train.precision=BF16"};

TEST(TextRunTest, Bf16TrainsLikeF32) {
  const Result f32 = Train({}, 1), bf16 = Train(kBf16, RunArgs{.compute = DType::BF16});
  EXPECT_GT(LargestDifference(f32.losses, bf16.losses), 0) << "nothing was rounded";
  EXPECT_LT(LargestDifference(f32.losses, bf16.losses),
            0.02);  // 2^-8 relative in each of some products
  EXPECT_EQ(Train(kBf16, RunArgs{.compute = DType::BF16}).losses, bf16.losses);
  EXPECT_EQ(Train(kBf16, RunArgs{.compute = DType::F32}).losses, f32.losses);
}

TEST(TextRunTest, AResumedRunComputesAsItsCheckpointDid) {
  for (const DType compute :
       {DType::F32, DType::BF16}) {  // one of them is not what is measured here
    const support::TempFolder folder;
    const std::vector<double> unbroken =
        Train(kBf16, RunArgs{.replicas = 2, .compute = compute}).losses;
    testing::internal::CaptureStdout();
    Train(kBf16,
          RunArgs{.replicas = 2, .compute = compute, .out = folder.path(), .stop_after = 10});
    const auto saved =
        checkpoint::OpenCheckpoint(folder / "checkpoints", checkpoint::Choice::NEWEST);
    ASSERT_TRUE(saved.ok()) << saved.status();
    const Result resumed =
        Train(kBf16, RunArgs{.replicas = 2, .out = folder.path(), .resume = &*saved});
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(resumed.losses, std::vector<double>(unbroken.begin() + 10, unbroken.end()))
        << NameOf(compute);
    const auto last =
        checkpoint::OpenCheckpoint(folder / "checkpoints", checkpoint::Choice::NEWEST);
    ASSERT_TRUE(last.ok()) << last.status();
    EXPECT_EQ(last->manifest.step(), 30u);
    EXPECT_EQ(last->manifest.compute(),
              compute == DType::BF16 ? tandem::Train::BF16 : tandem::Train::F32)
        << "for the next one";
  }
}

TEST(TextRunTest, TiedTokensOnServersAreTheHeadToo) {
  const std::vector<std::string> tied{"model.gpt.tied_embeddings=true",
                                      "model.gpt.linear_bias=false"};
  const Result replicated = Train(tied, 2);
  std::vector<std::string> served = tied;
  served.push_back("placement=PS");
  const Result on_servers = Train(served, 2);
  EXPECT_EQ(on_servers.summary.dense_parameters + 14 * 32, replicated.summary.dense_parameters);
  EXPECT_LT(on_servers.losses.back(), 0.8 * on_servers.losses.front());
}

}  // namespace
}  // namespace tandem::loop
