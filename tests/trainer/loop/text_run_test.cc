// Whole runs of a small language model through the training loop: layouts, threads, precision and placement.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "ps/client_local.h"
#include "ps/table_host.h"
#include "trainer/cli/job_config.h"
#include "trainer/comm/thread_group.h"
#include "trainer/loop/text_data.h"
#include "trainer/loop/train_loop.h"

namespace tandem::loop {
namespace {

constexpr char kJob[] = R"(
data { path: "text" }
model { gpt { max_length: 16 layers: 2 heads: 2 dim: 32 norm_bias: true linear_bias: true } }
optimizer { kind: ADAMW learning_rate: 3e-3 weight_decay: 0.01 }
train { batch_size: 6 max_steps: 30 eval_every_steps: 30 }
)";

// Words of a small grammar, so that there is something to learn.
data::Text SmallText() {
  std::string text;
  const char* words[] = {"the cat ", "sat on ", "a mat. ", "so did ", "the dog "};
  for (uint64_t i = 0; i < 600; ++i) text += words[RandomBelow({1, 2}, 0, i, 5)];
  data::Text result;
  result.vocabulary = data::Vocabulary(U" .acdeghimnost");
  const auto encoded = result.vocabulary.Encode(text);
  for (int64_t symbol : encoded->numbers) result.train.push_back(static_cast<int32_t>(symbol));
  result.valid.assign(result.train.end() - 500, result.train.end());
  result.train.resize(result.train.size() - 500);
  return result;
}

struct Result {
  RunSummary summary;
  std::vector<double> losses;
};

Result Train(const std::vector<std::string>& sets, int replicas) {
  const auto job = ParseJob(kJob, "job", sets, {.num_trainers = replicas});
  EXPECT_TRUE(job.ok()) << job.status();
  const TextData data(SmallText());
  ps::TableHost host(1);
  const auto groups = comm::ThreadGroup::Create(replicas, "dp");
  Result result;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < replicas; ++rank) {
    threads.emplace_back([&, rank] {
      ps::LocalClient client(host, static_cast<uint32_t>(rank), static_cast<uint32_t>(replicas));
      ReplicaEnvironment environment;
      environment.group = groups[rank].get();
      environment.client = &client;
      if (rank == 0) environment.on_step = [&](const StepRecord& record) { result.losses.push_back(record.loss); };
      const auto summary = RunReplica(*job, data, environment);
      ASSERT_TRUE(summary.ok()) << summary.status();
      if (rank == 0) result.summary = *summary;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
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

TEST(TextRunTest, Bf16TrainsLikeF32) {
  const Result f32 = Train({}, 1), bf16 = Train({"train.precision=BF16"}, 1);
  EXPECT_LT(LargestDifference(f32.losses, bf16.losses), 0.02);  // 2^-8 relative in each of some products
  EXPECT_EQ(Train({"train.precision=BF16"}, 1).losses, bf16.losses);
}

TEST(TextRunTest, TiedTokensOnServersAreTheHeadToo) {
  const std::vector<std::string> tied{"model.gpt.tied_embeddings=true", "model.gpt.linear_bias=false"};
  const Result replicated = Train(tied, 2);
  std::vector<std::string> served = tied;
  served.push_back("placement=PS");
  const Result on_servers = Train(served, 2);
  EXPECT_EQ(on_servers.summary.dense_parameters + 14 * 32, replicated.summary.dense_parameters);
  EXPECT_LT(on_servers.losses.back(), 0.8 * on_servers.losses.front());
}

}  // namespace
}  // namespace tandem::loop
