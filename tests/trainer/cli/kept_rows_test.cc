// Whole runs whose trainers keep rows: the effect of `ps.consistency` ROW_BOUND and GEO and of
// `ps.cache_rows` on a job.
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_join.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/cli/client_of_job.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/train_loop.h"
#include "trainer/tasks/ranking/sequence_data.h"

namespace tandem::cli {
namespace {

constexpr int kReplicas = 2;
constexpr char kJob[] = R"(
  data { path: "log" }
  model { sequence_rec { max_length: 8 layers: 1 ffn_dim: 16 init_stddev: 0.1 } }
  tables { name: "item" dim: 8 init_stddev: 0.1 }
  optimizer { learning_rate: 0.01 }
  train { max_epochs: 6 batch_size: 16 eval_every_epochs: 2 }
  runtime { timeout_seconds: 30 }
  checkpoint { every_steps: 7 }
)";

class KeptRowsTest : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStdout(); }
  void TearDown() override { testing::internal::GetCapturedStdout(); }

  Job Load(const std::vector<std::string>& sets) {
    const absl::StatusOr<Job> job =
        LoadJob(folder_.Write("job.textproto", kJob), sets,
                {.models = OurKinds().models(), .num_trainers = kReplicas});
    EXPECT_TRUE(job.ok()) << job.status();
    return *job;
  }
  // Returns the losses of all steps. The run writes into `out`.
  std::vector<double> Train(const Job& job, const std::string& out,
                            const checkpoint::Checkpoint* resume = nullptr) {
    const SequenceRecData data(
        {.interactions =
             data::Generate(
                 {.seed = 5, .users = 70, .items = 30, .min_length = 3, .max_length = 12})
                 .log,
         .path = "log"});
    auto output = report::RunOutput::Create(out, report::LogFormat::JSON);
    EXPECT_TRUE(output.ok()) << output.status();
    ps::TableHost host(1);
    auto groups = comm::ThreadGroup::Create(kReplicas, "dp");
    std::vector<double> losses;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kReplicas; ++rank) {
      threads.emplace_back([&, rank] {
        auto local = std::make_unique<ps::LocalClient>(
            host, static_cast<uint32_t>(rank), uint32_t{kReplicas}, job::ConsistencyOf(job));
        ps::MergedPushes& pushes = *local;
        auto merged = MergePushes(job, std::move(local), pushes, *groups[rank], 0);
        ASSERT_TRUE(merged.ok()) << merged.status();
        const ps::ClientStack clients = ClientOfJob(job, *std::move(merged), rank);
        loop::ReplicaEnvironment environment{
            .resume = resume, .group = groups[rank].get(), .clients = clients};
        report::OnStep on_step(
            [&losses](const report::StepRecord& record) { losses.push_back(record.loss); });
        if (rank == 0) {
          environment.output = output->get();
          environment.observer = &on_step;
        }
        const auto summary = loop::RunReplica(job, data, environment);
        ASSERT_TRUE(summary.ok()) << summary.status();
        if (rank == 0) {
          hash_ = *summary->params_hash;
          report_ = absl::StrJoin(clients.tables->Report(), "\n");
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return losses;
  }
  std::vector<double> Train(const std::vector<std::string>& sets) {
    return Train(Load(sets), folder_.path() + "/out");
  }

  const support::TempFolder folder_;
  absl::uint128 hash_ = 0;  // of the last run
  std::string report_;      // likewise, the lines of rank 0's client
};

TEST_F(KeptRowsTest, CacheChangesNoBitOfASynchronousRun) {
  const std::vector<double> losses = Train({});
  const absl::uint128 hash = hash_;
  for (const char* rows : {"ps.cache_rows=7", "ps.cache_rows=1000"}) {
    EXPECT_EQ(Train({rows}), losses);
    EXPECT_EQ(hash_, hash);
  }
}

TEST_F(KeptRowsTest, MergedPushesChangeNoBitOfASynchronousRun) {
  for (const char* set : {"seed=1", "ps.cache_rows=7", "optimizer.max_grad_norm=0.5"}) {
    const std::vector<double> losses = Train({set});
    const absl::uint128 hash = hash_;
    EXPECT_EQ(report_.find("merged pushes"), std::string::npos);
    EXPECT_EQ(Train({set, "ps.merge_pushes=true"}), losses);
    EXPECT_EQ(hash_, hash) << set;
    EXPECT_NE(report_.find("merged pushes: gradients of"), std::string::npos) << report_;
    EXPECT_EQ(report_.find("row cache: of") != std::string::npos,
              std::string(set).starts_with("ps.cache_rows"))
        << report_;
  }
}

TEST_F(KeptRowsTest, BoundedAndLocalRowsLearnAsASynchronousRunDoes) {
  const std::vector<double> synchronous = Train({});
  const double learned = synchronous.front() - synchronous.back();
  ASSERT_GT(learned, 0.05);
  for (const std::vector<std::string>& sets : std::vector<std::vector<std::string>>{
           {"ps.consistency=ROW_BOUND", "ps.read_bound=4"},
           {"ps.consistency=ROW_BOUND", "ps.read_bound=2", "ps.write_bound=3"},
           {"ps.consistency=GEO", "ps.geo_steps=4"},
       }) {
    const std::vector<double> losses = Train(sets);
    ASSERT_EQ(losses.size(), synchronous.size());
    // Each trainer updates rows by itself, up to twice as often as in synchronous steps. Late
    // updates cost some of the loss.
    EXPECT_GT(losses.front() - losses.back(), 0.7 * learned) << sets[0];
    EXPECT_LT(losses.front() - losses.back(), 2 * learned) << sets[0];
    EXPECT_NE(losses, synchronous) << sets[0];
  }
}

TEST_F(KeptRowsTest, RunsGoOnFromCheckpointsThatHoldEverybodysUpdates) {
  for (const std::string mode : {"ROW_BOUND", "GEO"}) {
    std::vector<std::string> sets = {"ps.consistency=" + mode, "train.max_epochs=2"};
    if (mode == "ROW_BOUND") sets.insert(sets.end(), {"ps.read_bound=2", "ps.write_bound=3"});
    const std::string out = folder_.path() + "/" + mode;
    const std::vector<double> first = Train(Load(sets), out);
    const auto saved = checkpoint::OpenCheckpoint(out + "/checkpoints", checkpoint::Choice::NEWEST);
    ASSERT_TRUE(saved.ok()) << saved.status();
    sets[1] = "train.max_epochs=4";
    const std::vector<double> second = Train(Load(sets), out + "-resumed", &*saved);
    ASSERT_FALSE(second.empty());
    EXPECT_LT(second.back(), first.front()) << mode;
  }
}

}  // namespace
}  // namespace tandem::cli
