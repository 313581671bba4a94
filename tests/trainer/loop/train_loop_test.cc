// Whole runs: their bits, their consistency modes, and what a replica's failure or slowness does.
#include "trainer/loop/train_loop.h"

#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "tests/ps/forwarding_client.h"
#include "tests/trainer/loop/small_run.h"

namespace tandem::loop {
namespace {

class TrainLoopTest : public ::testing::Test {
 protected:
  // The run's JSON lines would drown the test's own output.
  void SetUp() override { ::testing::internal::CaptureStdout(); }
  void TearDown() override { ::testing::internal::GetCapturedStdout(); }
};

TEST_F(TrainLoopTest, TheSameRunTwiceHasTheSameBits) {
  const RunResult a = Train(SmallJob(), 2), b = Train(SmallJob(), 2);
  EXPECT_EQ(a.summary.params_hash, b.summary.params_hash);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_GT(a.summary.sparse_rows, 0u);
}

TEST_F(TrainLoopTest, ThreadsAndServerWorkersDoNotChangeBits) {
  Job job = SmallJob();
  const auto one = Train(job, 1).summary.params_hash;
  job.mutable_runtime()->set_threads(3);
  EXPECT_EQ(Train(job, 1).summary.params_hash, one);
  job.mutable_ps()->set_threads(4);
  EXPECT_EQ(Train(job, 1).summary.params_hash, one);
}

TEST_F(TrainLoopTest, SeedAndStepsChangeTheHash) {
  Job job = SmallJob();
  const RunResult run = Train(job, 1);
  job.set_seed(4);
  EXPECT_NE(Train(job, 1).summary.params_hash, run.summary.params_hash);
  job.set_seed(3);
  job.mutable_train()->set_max_steps(run.summary.steps - 1);
  EXPECT_NE(Train(job, 1).summary.params_hash, run.summary.params_hash);
}

TEST_F(TrainLoopTest, ReplicasAndAccumulationDoNotChangeTheLosses) {
  for (const SequenceLoss loss : {BCE, SAMPLED_SOFTMAX, FULL_SOFTMAX}) {
    Job job = SmallJob();
    job.mutable_model()->mutable_sequence_rec()->set_loss(loss);
    job.mutable_optimizer()->set_max_grad_norm(0.5);
    const RunResult serial = Train(job, 1);
    ASSERT_GT(serial.losses.size(), 5u);
    for (const int replicas : {1, 2, 3}) {
      for (const int accumulate : {1, 3}) {
        job.mutable_parallel()->set_microbatches(accumulate);
        const RunResult parallel = Train(job, replicas);
        ASSERT_EQ(parallel.losses.size(), serial.losses.size());
        for (size_t i = 0; i < serial.losses.size(); ++i) {
          ASSERT_NEAR(parallel.losses[i], serial.losses[i], 1e-5 * serial.losses[i])
              << "step " << i + 1 << ", " << replicas << " replicas, " << accumulate << " parts";
        }
      }
    }
  }
}

// Trains with a record every `log_every` steps, the first three steps traced if `traced`, and an
// observer that counts in `observed` if there is one. Rows may be stale, so servers are watched.
absl::uint128 HashOfObservedRun(int log_every, bool traced, int* observed) {
  Job job = WithConsistency(SmallJob(1), PERMIT, 3);
  job.mutable_train()->set_log_every_steps(log_every);
  job.mutable_trace()->set_first_step(1);
  job.mutable_trace()->set_steps(traced ? 3 : -1);
  const SequenceRecData data = SmallData();
  const support::TempFolder folder;
  const auto output = report::RunOutput::Create(folder / "out", report::LogFormat::JSON).value();
  ps::TableHost host(1);
  ps::LocalClient client(host, 0, 1, job::ConsistencyOf(job));
  const auto groups = comm::ThreadGroup::Create(1, "dp");
  report::OnStep count([&](const report::StepRecord&) { ++*observed; });
  const auto summary = RunReplica(job, data,
                                  {.group = groups[0].get(),
                                   .clients = ps::ClientsOf(client),
                                   .output = output.get(),
                                   .observer = observed != nullptr ? &count : nullptr});
  EXPECT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(std::filesystem::exists(folder / "out/trace.json"), traced);
  return summary.ok() ? *summary->params_hash : 0;
}

TEST_F(TrainLoopTest, ObserversDoNotChangeBits) {
  int observed = 0;
  EXPECT_EQ(HashOfObservedRun(/*log_every=*/1, /*traced=*/true, &observed),
            HashOfObservedRun(/*log_every=*/1000, /*traced=*/false, nullptr));
  EXPECT_GT(observed, 5);
}

TEST_F(TrainLoopTest, PatienceStopsTheRunAndKeepsTheBestEpochsFigures) {
  Job job = SmallJob();
  job.mutable_optimizer()->set_learning_rate(1e-12);
  job.mutable_tables(0)->set_learning_rate(
      1e-12);  // nothing is learned: the first epoch stays the best
  job.mutable_train()->set_max_epochs(20);
  job.mutable_train()->set_patience(2);
  job.mutable_train()->set_min_epochs(3);
  const RunResult run = Train(job, 2);
  EXPECT_EQ(run.summary.best_epoch, 1);
  EXPECT_EQ(run.summary.epochs, 5);  // epochs 4 and 5 count against the patience of 2
  EXPECT_TRUE(run.summary.metrics.count("test/hr@10"));
}

// A client whose guard has dropped rank + 1 gradients, the first in step 9 - rank.
class GuardingClient : public ps::ForwardingClient {
 public:
  GuardingClient(const ps::Clients& inner, uint32_t rank) : ForwardingClient(inner), rank_(rank) {}
  rpc::Future<StatisticsReply> Statistics() override { return StatisticsWith(OwnStatistics()); }
  StatisticsReply OwnStatistics() const override {
    StatisticsReply own;
    TableStatistics& table = *own.add_tables();
    table.set_name("item");
    table.set_number(1);
    table.set_skipped(rank_ + 1);
    table.mutable_first_offender()->set_id(77);
    table.mutable_first_offender()->set_trainer(rank_);
    table.mutable_first_offender()->set_step(9 - rank_);
    return own;
  }

 private:
  const uint32_t rank_;
};

TEST_F(TrainLoopTest, TheLastLinesCountWhatEveryTrainersClientKeptFromTheServers) {
  Train(SmallJob(), 2, report::LogFormat::TEXT, [](ps::TableHost& host, uint32_t rank) {
    ps::ClientStack client = std::make_unique<ps::LocalClient>(host, rank, 2);
    client.Wrap<GuardingClient>(rank);
    return client;
  });
  const std::string told = ::testing::internal::GetCapturedStdout();
  ::testing::internal::CaptureStdout();
  EXPECT_NE(told.find("row gradients that were not finite: 3 dropped"), std::string::npos) << told;
  EXPECT_NE(told.find("the first: id 77 of trainer 1 in step 8"), std::string::npos) << told;
}

TEST_F(TrainLoopTest, AReplicaThatFailsFreesItsPeer) {
  const Job job = SmallJob();
  const SequenceRecData data = SmallData();
  ps::TableHost host(1);
  auto groups = comm::ThreadGroup::Create(2, "dp");
  std::vector<absl::Status> ends(2);
  std::vector<std::thread> threads;
  report::OnStep abort([&](const report::StepRecord& record) {
    if (record.step == 3) groups[1]->Abort(absl::CancelledError("enough"));
  });
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ps::LocalClient client(host, static_cast<uint32_t>(rank), 2);
      ends[rank] = RunReplica(job, data,
                              {.group = groups[rank].get(),
                               .clients = ps::ClientsOf(client),
                               .observer = rank == 1 ? &abort : nullptr})
                       .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(ends[1].ok());
  EXPECT_FALSE(ends[0].ok());
  EXPECT_NE(ends[0].message().find("enough"), std::string::npos) << ends[0];
}

TEST_F(TrainLoopTest, OneTrainerThatSeesItsOwnUpdatesHasTheBitsOfBsp) {
  const RunResult bsp = Train(SmallJob(), 1);
  for (const Job& job :
       {WithConsistency(SmallJob(), SSP), WithConsistency(SmallJob(), SSP, 3),
        WithConsistency(SmallJob(), ASP), WithConsistency(SmallJob(), PERMIT, 1)}) {
    const RunResult run = Train(job, 1);
    EXPECT_EQ(run.summary.params_hash, bsp.summary.params_hash) << job.ps().ShortDebugString();
    EXPECT_EQ(run.losses, bsp.losses);
    EXPECT_EQ(run.most_stale, 0);
  }
  const RunResult ahead = Train(WithConsistency(SmallJob(), PERMIT, 3), 1);
  EXPECT_NE(ahead.summary.params_hash, bsp.summary.params_hash)
      << "rows were pulled before the steps between were applied";
  EXPECT_EQ(ahead.most_stale, 2) << "the slowest trainer is the only one";
  EXPECT_EQ(ahead.losses.size(), bsp.losses.size());
}

TEST_F(TrainLoopTest, ReplicasTrainInEveryModeWithinItsBound) {
  const RunResult bsp = Train(SmallJob(), 2);
  for (const auto& [mode, staleness, most] :
       {std::tuple(SSP, 0, 0), {SSP, 1, 1}, {ASP, 0, 1}, {PERMIT, 1, 1}, {PERMIT, 3, 3}}) {
    const RunResult run = Train(WithConsistency(SmallJob(), mode, staleness), 2);
    EXPECT_LE(run.most_stale, most) << Consistency_Name(mode) << " " << staleness
                                    << " (dense layers keep trainers within one step)";
    ASSERT_EQ(run.losses.size(), bsp.losses.size());
    EXPECT_NEAR(run.losses.back(), bsp.losses.back(), 0.1 * bsp.losses.back());
    EXPECT_EQ(run.summary.sparse_rows, bsp.summary.sparse_rows) << "the same rows were pushed to";
  }
}

TEST(EvaluationTest, MayTakeLongerThanAWaitForPeers) {
  Job job = SmallJob();
  job.set_placement(Job::REPLICATED);
  const SequenceRecData data = SmallData();
  auto groups = comm::ThreadGroup::Create(2, "dp");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadPool pool(1);
      Stream stream(&pool);
      ParameterSet parameters(1, DType::F32);
      const auto task = data.MakeTask(
          job, {.parameters = &parameters, .tables = nullptr, .group = groups[rank].get()});
      bool first = true;
      const auto slow = [&first](const std::string&) {
        if (std::exchange(first, false)) absl::SleepFor(absl::Milliseconds(300));
      };
      const auto evaluation =
          task->Evaluate(tasks::EvaluationSplit::VALID,
                         {.stream = &stream, .timeout = absl::Milliseconds(200), .dump = slow});
      EXPECT_TRUE(evaluation.ok()) << evaluation.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Saving takes longer than a replica waits for a peer.
class SlowlySavingClient : public ps::ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;
  rpc::Future<std::vector<SavedFile>> Save(uint64_t step, const std::string& folder,
                                           absl::Time deadline) override {
    absl::SleepFor(absl::Seconds(3));
    return ForwardingClient::Save(step, folder, deadline);
  }
};

TEST_F(TrainLoopTest, ACheckpointMayTakeLongerThanAWaitForPeers) {
  Job job = SmallJob();
  job.mutable_train()->set_max_steps(2);
  job.mutable_runtime()->set_timeout_seconds(2);
  const RunResult run =
      Train(job, 2, report::LogFormat::JSON, [](ps::TableHost& host, uint32_t rank) {
        ps::ClientStack client = std::make_unique<ps::LocalClient>(host, rank, 2);
        client.Wrap<SlowlySavingClient>();
        return client;
      });
  EXPECT_EQ(run.summary.status, report::kCompleted);
  EXPECT_EQ(run.summary.best_step, 2) << "there was a checkpoint";
}

}  // namespace
}  // namespace tandem::loop
