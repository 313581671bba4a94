// Whole runs of small models with a fault in them. Replicas are threads, in any number.
#pragma once

#include <algorithm>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <sstream>
#include <thread>

#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/ps/cluster.h"
#include "tests/ps/forwarding_client.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/loop/faulty_model.h"
#include "tests/trainer/loop/small_text.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_config.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/train_loop.h"
#include "trainer/tasks/ranking/sequence_data.h"
#include "trainer/tasks/text/text_data.h"

namespace tandem::loop {

inline constexpr char kGpt[] = R"(
data { path: "text" }
model { gpt { max_length: 8 layers: 1 heads: 2 dim: 16 norm_bias: true linear_bias: true } }
optimizer { learning_rate: 1e-2 }
train { batch_size: 4 max_steps: 4 eval_every_steps: 2 }
)";
// A language model whose dense parameters live on servers.
inline constexpr char kServedGpt[] = R"(
data { path: "text" }
model { gpt { max_length: 8 layers: 1 heads: 2 dim: 16 norm_bias: true linear_bias: true } }
optimizer { learning_rate: 1e-2 }
train { batch_size: 4 max_steps: 4 eval_every_steps: 2 }
parameters { match: "*" placement: PS }
)";
// A recommender whose items live on servers.
inline constexpr char kRecommender[] = R"(
data { path: "log" }
tables { name: "item" dim: 8 }
model { sequence_rec { max_length: 8 layers: 1 heads: 2 init_stddev: 0.1 } }
optimizer { learning_rate: 1e-2 }
train { batch_size: 16 max_steps: 4 eval_every_steps: 2 }
)";

struct FaultyRun {
  int replicas = 1;
  int servers = 0;  // 0: tables in this process
  Fault fault = {};
  Device device = {};
  bool poisoned_evaluations = false;  // rows that an evaluation pulls are NaN
  // Wraps the client that speaks to the tables in the one that the job's consistency asks for.
  // Null: no wrapping.
  std::function<ps::ClientStack(const Job&, ps::ClientStack, int replica)> client_of_job = nullptr;
};

// A client that turns the rows of evaluations into NaN.
class PoisoningClient : public ps::ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;
  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<ps::PullSegment> segments) override {
    const auto pulled = ForwardingClient::Pull(step, create, segments);
    if (step != 0) return pulled;
    pulled.Wait(absl::InfiniteFuture()).IgnoreError();
    segments[0].rows[0] = std::numeric_limits<float>::quiet_NaN();
    return pulled;
  }
};

struct FaultyResult {
  std::vector<absl::Status> ends;  // by rank
  report::RunSummary summary;
  std::vector<double> losses, learning_rates;
  std::vector<int64_t> skipped;          // steps
  std::string printed, evaluations;      // of rank 0
  std::vector<std::string> checkpoints;  // "step-00000001"

  bool ok() const {
    return std::all_of(ends.begin(), ends.end(), [](const absl::Status& end) { return end.ok(); });
  }
};

inline std::unique_ptr<tasks::JobData> SmallDataOf(const Job& job) {
  if (job.model().has_gpt()) return std::make_unique<GptData>(tasks::TextFile{SmallText()});
  return std::make_unique<SequenceRecData>(tasks::SequenceFiles{
      .interactions =
          data::Generate({.seed = 5, .users = 70, .items = 30, .min_length = 4, .max_length = 12})
              .log,
      .path = "log"});
}

inline FaultyResult RunWith(const std::string& text, const std::vector<std::string>& sets,
                            const FaultyRun& run) {
  const auto job =
      ParseJob(text, "job", sets, {.models = OurKinds().models(), .num_trainers = run.replicas});
  EXPECT_TRUE(job.ok()) << job.status();
  const FaultyData data(SmallDataOf(*job), run.fault);
  const support::TempFolder folder;
  testing::internal::CaptureStdout();
  FaultyResult result;
  {
    const auto output = report::RunOutput::Create(folder / "out", report::LogFormat::TEXT).value();
    ps::TableHost host(2);
    ps::PsCluster cluster(run.servers, 2);
    const auto groups = comm::ThreadGroup::Create(run.replicas, "dp");
    result.ends.resize(static_cast<size_t>(run.replicas));
    report::OnStep on_step([&](const report::StepRecord& record) {
      result.losses.push_back(record.loss);
      result.learning_rates.push_back(record.learning_rate);
      if (record.skipped) result.skipped.push_back(record.step);
    });
    std::vector<std::thread> threads;
    for (int rank = 0; rank < run.replicas; ++rank) {
      threads.emplace_back([&, rank] {
        const auto trainer = static_cast<uint32_t>(rank),
                   trainers = static_cast<uint32_t>(run.replicas);
        ps::ClientStack client;
        if (run.servers == 0)
          client =
              std::make_unique<ps::LocalClient>(host, trainer, trainers, job::ConsistencyOf(*job));
        else
          client = cluster.MakeClient(
              trainer, trainers,
              {.timeout = absl::Seconds(30), .consistency = job::ConsistencyOf(*job)});
        if (run.client_of_job) client = run.client_of_job(*job, std::move(client), rank);
        if (run.poisoned_evaluations) client.Wrap<PoisoningClient>();
        ReplicaEnvironment environment;
        environment.group = groups[rank].get();
        environment.clients = client;
        environment.output = rank == 0 ? output.get() : nullptr;
        environment.device = run.device;
        environment.compute = DType::F32;
        if (rank == 0) environment.observer = &on_step;
        const auto summary = RunReplica(*job, data, environment);
        result.ends[static_cast<size_t>(rank)] = summary.status();
        if (rank == 0 && summary.ok()) result.summary = *summary;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  result.printed = testing::internal::GetCapturedStdout();
  std::ostringstream evaluations;
  evaluations << std::ifstream(folder / "out/evaluations.jsonl").rdbuf();
  result.evaluations = evaluations.str();
  for (const std::string& path : checkpoint::ListCheckpoints(folder / "out/checkpoints")) {
    result.checkpoints.push_back(path.substr(path.rfind('/') + 1));
  }
  return result;
}

// Expects that every replica ended because the model diverged, with `words` in its error.
inline void ExpectDiverged(const FaultyResult& result, const std::vector<std::string>& words) {
  for (size_t rank = 0; rank < result.ends.size(); ++rank) {
    const absl::Status& end = result.ends[rank];
    EXPECT_TRUE(absl::IsOutOfRange(end)) << "replica " << rank << ": " << end;
    for (const std::string& word : words) {
      EXPECT_NE(end.message().find(word), absl::string_view::npos)
          << "replica " << rank << ": " << end << "\nwanted: " << word;
    }
  }
}

}  // namespace tandem::loop
