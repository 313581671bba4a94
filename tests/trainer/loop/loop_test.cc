#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/count_text.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "tests/ps/forwarding_client.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/our_kinds.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/data/synthetic.h"
#include "trainer/job/job_options.h"
#include "trainer/loop/run_state.h"
#include "trainer/loop/step_loader.h"
#include "trainer/loop/train_loop.h"
#include "trainer/report/server_watch.h"
#include "trainer/tasks/sequence_data.h"

namespace tandem {
namespace {

// A resolved job, with the fields that LoadJob would fill in.
Job SmallJob() {
  Job job;
  job.set_name("small");
  job.set_seed(3);
  job.set_placement(Job::PS);
  auto* model = job.mutable_model()->mutable_sequence_rec();
  model->set_max_length(8);
  model->set_layers(1);
  model->set_heads(2);
  model->set_ffn_dim(16);
  model->set_dropout(0.2f);
  model->set_norm_epsilon(1e-12);
  model->set_init_stddev(0.1);
  model->set_loss(BCE);
  model->set_num_negatives(8);
  auto* table = job.add_tables();
  table->set_name("item");
  table->set_dim(8);
  table->set_optimizer(ADAM);
  table->set_init_stddev(0.1);
  table->set_learning_rate(1e-2);
  auto* optimizer = job.mutable_optimizer();
  optimizer->set_kind(ADAM);
  optimizer->set_learning_rate(1e-2);
  optimizer->set_beta1(0.9);
  optimizer->set_beta2(0.999);
  optimizer->set_epsilon(1e-8);
  auto* train = job.mutable_train();
  train->set_max_epochs(2);
  train->set_batch_size(16);
  train->set_eval_every_epochs(1);
  train->set_log_every_steps(1);
  train->set_accumulate(1);
  train->set_select_by(VALID_MRR);
  job.mutable_ps()->set_threads(1);
  job.mutable_runtime()->set_threads(1);
  job.mutable_runtime()->set_timeout_seconds(30);
  job.mutable_checkpoint()->set_keep(1);
  job.mutable_checkpoint()->set_timeout_seconds(30);
  return job;
}

SequenceRecData SmallData() {
  return SequenceRecData(
      {.interactions =
           data::Generate({.seed = 5, .users = 70, .items = 30, .min_length = 3, .max_length = 12})
               .log,
       .path = "log"});
}

struct RunResult {
  report::RunSummary summary;
  std::vector<double> losses;
  double most_stale = 0;
};

double FieldOf(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\":");
  EXPECT_NE(at, std::string::npos) << name << " in " << json;
  return std::atof(json.c_str() + at + name.size() + 3);
}

using MakeClient = std::function<ps::ClientStack(ps::TableHost& host, uint32_t rank)>;

RunResult Train(const Job& job, int num_replicas,
                report::LogFormat format = report::LogFormat::JSON,
                MakeClient make_client = nullptr) {
  if (make_client == nullptr) {
    make_client = [&](ps::TableHost& host, uint32_t rank) {
      return std::make_unique<ps::LocalClient>(host, rank, static_cast<uint32_t>(num_replicas),
                                               job::ConsistencyOf(job));
    };
  }
  const SequenceRecData data = SmallData();
  const support::TempFolder folder;
  RunResult result;
  {
    auto output = report::RunOutput::Create(folder.path() + "/out", format);
    EXPECT_TRUE(output.ok()) << output.status();
    ps::TableHost host(job.ps().threads());
    auto groups = comm::ThreadGroup::Create(num_replicas, "dp");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < num_replicas; ++rank) {
      threads.emplace_back([&, rank] {
        const auto client = make_client(host, static_cast<uint32_t>(rank));
        const auto summary = loop::RunReplica(job, data,
                                              {.group = groups[rank].get(),
                                               .clients = client,
                                               .output = rank == 0 ? output->get() : nullptr});
        ASSERT_TRUE(summary.ok()) << summary.status();
        if (rank == 0) result.summary = *summary;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::ifstream metrics(folder.path() + "/out/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    result.losses.push_back(FieldOf(line, "loss"));
    result.most_stale = std::max(result.most_stale, FieldOf(line, "staleness"));
  }
  return result;
}

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
        job.mutable_train()->set_accumulate(accumulate);
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
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ps::LocalClient client(host, static_cast<uint32_t>(rank), 2);
      ends[rank] = loop::RunReplica(job, data,
                                    {.group = groups[rank].get(),
                                     .clients = ps::ClientsOf(client),
                                     .on_step =
                                         [&, rank](const report::StepRecord& record) {
                                           if (rank == 1 && record.step == 3) {
                                             groups[1]->Abort(absl::CancelledError("enough"));
                                           }
                                         }})
                       .status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(ends[1].ok());
  EXPECT_FALSE(ends[0].ok());
  EXPECT_NE(ends[0].message().find("enough"), std::string::npos) << ends[0];
}

TEST_F(TrainLoopTest, AStopAskedOfOneReplicaEndsAllAfterTheSameStep) {
  const Job job = SmallJob();
  const SequenceRecData data = SmallData();
  const support::TempFolder folder;
  auto output = report::RunOutput::Create(folder.path() + "/out", report::LogFormat::JSON);
  ASSERT_TRUE(output.ok()) << output.status();
  ps::TableHost host(1);
  auto groups = comm::ThreadGroup::Create(2, "dp");
  std::vector<absl::StatusOr<report::RunSummary>> ends(2, absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ps::LocalClient client(host, static_cast<uint32_t>(rank), 2);
      int asked = 0;
      ends[rank] = loop::RunReplica(
          job, data,
          {.group = groups[rank].get(),
           .clients = ps::ClientsOf(client),
           .output = rank == 0 ? output->get() : nullptr,
           .stop_requested = [&asked, rank] { return rank == 1 && ++asked == 3; }});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& end : ends) {
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ(end->status, report::kStopped);
    EXPECT_EQ(end->steps, 3);
  }
  EXPECT_TRUE(
      std::filesystem::exists(folder.path() + "/out/checkpoints/step-00000003/manifest.textproto"));
}

Job WithConsistency(Job job, Consistency consistency, int staleness = 0) {
  job.mutable_ps()->set_consistency(consistency);
  job.mutable_ps()->set_staleness(staleness);
  return job;
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

struct BrokenRun {
  report::RunSummary summary;
  int times_asked = 0;  // of rank 1
};

// Trains two replicas. The `stop_at`-th question whether to stop, counted from 1, stops rank 1.
// Resumes if there is a checkpoint.
BrokenRun TrainUntil(const std::string& out, const Job& job, int stop_at) {
  const SequenceRecData data = SmallData();
  std::optional<checkpoint::Checkpoint> saved;
  if (!checkpoint::ListCheckpoints(out + "/checkpoints").empty()) {
    const auto opened =
        checkpoint::OpenCheckpoint(out + "/checkpoints", checkpoint::Choice::NEWEST);
    EXPECT_TRUE(opened.ok()) << opened.status();
    saved = *opened;
  }
  auto output = report::RunOutput::Create(out, report::LogFormat::JSON);
  EXPECT_TRUE(output.ok()) << output.status();
  ps::TableHost host(1);
  auto groups = comm::ThreadGroup::Create(2, "dp");
  BrokenRun run;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      ps::LocalClient client(host, static_cast<uint32_t>(rank), 2, job::ConsistencyOf(job));
      const auto summary = loop::RunReplica(job, data,
                                            {.resume = saved ? &*saved : nullptr,
                                             .group = groups[rank].get(),
                                             .clients = ps::ClientsOf(client),
                                             .output = rank == 0 ? output->get() : nullptr,
                                             .stop_requested = [&run, rank, stop_at] {
                                               return rank == 1 && ++run.times_asked == stop_at;
                                             }});
      ASSERT_TRUE(summary.ok()) << summary.status();
      if (rank == 0) run.summary = *summary;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return run;
}

std::string ReadWhole(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Each step and each evaluation block asks once whether to stop. Stops may fall between the two
// parts of an evaluation, or in the last.
TEST_F(TrainLoopTest, AStopAtAnyPlaceAndAResumeEndAsTheUnbrokenRun) {
  Job job = SmallJob();
  job.mutable_train()->set_max_epochs(100);
  job.mutable_train()->set_eval_every_steps(2);
  job.mutable_train()->set_patience(2);
  job.mutable_train()->set_max_steps(9);
  const support::TempFolder folder;
  const BrokenRun unbroken = TrainUntil(folder.path() + "/unbroken", job, 0);
  ASSERT_EQ(unbroken.summary.status, report::kCompleted);
  const std::string evaluations = ReadWhole(folder.path() + "/unbroken/evaluations.jsonl");
  ASSERT_GT(unbroken.times_asked, 2 + static_cast<int>(unbroken.summary.steps))
      << "evaluations ask too";
  for (int place = 1; place <= unbroken.times_asked; ++place) {
    SCOPED_TRACE(place);
    const std::string out = folder.path() + "/run" + std::to_string(place);
    const BrokenRun stopped = TrainUntil(out, job, place);
    EXPECT_EQ(stopped.summary.status, report::kStopped);
    EXPECT_EQ(stopped.times_asked, place) << "nothing is begun any more";
    const BrokenRun resumed = TrainUntil(out, job, 0);
    EXPECT_EQ(resumed.summary.status, report::kCompleted);
    EXPECT_EQ(resumed.summary.steps, unbroken.summary.steps);
    EXPECT_EQ(resumed.summary.params_hash, unbroken.summary.params_hash);
    EXPECT_EQ(resumed.summary.best_step, unbroken.summary.best_step);
    EXPECT_EQ(resumed.summary.metrics, unbroken.summary.metrics);
    EXPECT_EQ(ReadWhole(out + "/evaluations.jsonl"), evaluations);
    const auto best = checkpoint::OpenCheckpoint(out + "/checkpoints", checkpoint::Choice::BEST);
    ASSERT_TRUE(best.ok()) << best.status();
    EXPECT_EQ(best->manifest.step(), static_cast<uint64_t>(unbroken.summary.best_step));
  }
}

// A checkpoint needs every trainer's commits, although no trainer waits for another's.
TEST_F(TrainLoopTest, AStoppedRunGoesOnInEveryMode) {
  for (const Job& job : {WithConsistency(SmallJob(), SSP, 2), WithConsistency(SmallJob(), ASP),
                         WithConsistency(SmallJob(), PERMIT, 3)}) {
    SCOPED_TRACE(job.ps().ShortDebugString());
    const support::TempFolder folder;
    const BrokenRun stopped = TrainUntil(folder.path() + "/run", job, 3);
    ASSERT_EQ(stopped.summary.status, report::kStopped);
    EXPECT_EQ(stopped.summary.steps, 3);
    const BrokenRun resumed = TrainUntil(folder.path() + "/run", job, 0);
    EXPECT_EQ(resumed.summary.status, report::kCompleted);
    EXPECT_EQ(resumed.summary.epochs, 2);
  }
}

TEST_F(TrainLoopTest, AnEvaluationIsMadeUpAgainByARunThatWasKilledAfterIt) {
  Job job = SmallJob();
  job.mutable_train()->set_eval_every_steps(2);
  const support::TempFolder folder;
  const std::string out = folder.path() + "/run", evaluations = out + "/evaluations.jsonl";
  TrainUntil(folder.path() + "/unbroken", job, 0);
  ASSERT_EQ(TrainUntil(out, job, 3).summary.steps, 2);  // in the first evaluation
  std::ofstream(evaluations, std::ios::app)
      << "{\"step\":2,\"epoch\":1,\"of\":\"the killed run\"}\n";
  TrainUntil(out, job, 0);
  EXPECT_EQ(ReadWhole(evaluations), ReadWhole(folder.path() + "/unbroken/evaluations.jsonl"));
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
          job, {.parameters = &parameters, .table = nullptr, .group = groups[rank].get()});
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

TEST(ServerWatchTest, TheMostStepsOfWhatWasCountedMeanwhile) {
  const auto histogram = [](const std::vector<uint64_t>& counts, uint64_t max) {
    StepHistogram made;
    made.mutable_counts()->Assign(counts.begin(), counts.end());
    made.set_max(max);
    return made;
  };
  EXPECT_EQ(report::MostSteps({}, {}), 0);
  EXPECT_EQ(report::MostSteps({}, histogram({3, 2, 0, 0}, 1)), 1);
  EXPECT_EQ(report::MostSteps(histogram({3, 2, 0, 0}, 1), histogram({5, 2, 0, 0}, 1)), 0);
  EXPECT_EQ(report::MostSteps(histogram({3, 2, 1, 0}, 2), histogram({5, 3, 1, 0}, 2)), 1);
  EXPECT_EQ(report::MostSteps(histogram({3, 2, 1, 0}, 2), histogram({5, 3, 1, 1}, 40)), 40)
      << "the last counts all above";
}

TEST(ServerWatchTest, NotesNameTheStalenessAndTheFirstOffender) {
  StatisticsReply statistics;
  statistics.mutable_staleness()->mutable_counts()->Resize(17, 0);
  statistics.mutable_staleness()->set_counts(2, 5);
  statistics.mutable_staleness()->set_counts(16, 1);
  statistics.mutable_staleness()->set_max(40);
  statistics.mutable_outstanding()->set_max(3);
  statistics.add_tables()->set_name("sound");
  TableStatistics& table = *statistics.add_tables();
  table.set_name("item");
  table.set_skipped(4);
  table.mutable_first_offender()->set_id(77);
  table.mutable_first_offender()->set_trainer(1);
  table.mutable_first_offender()->set_step(9);
  const std::string guarded =
      "table item: row gradients that were not finite: 4 dropped, 0 mended, 0 messages refused; 0 "
      "rows clipped; "
      "the first: id 77 of trainer 1 in step 9";
  EXPECT_EQ(report::ServerNotes(statistics, false), std::vector<std::string>{guarded});
  EXPECT_EQ(report::ServerNotes(statistics, true),
            (std::vector<std::string>{"staleness: pulls missed up to 40 steps of the slowest "
                                      "trainer (pulls by steps missed: 2: 5 16+: 1); "
                                      "up to 3 steps of a trainer under way",
                                      guarded}));
}

TEST(RunStateTest, GoesOnWhereItWasSaved) {
  class tandem::Train train;
  train.set_patience(3);
  train.set_min_epochs(1);
  const std::map<std::string, double> metrics{{"valid/mrr", 0.25}, {"valid/hr@10", 0.5}};
  loop::RunState state(train);
  state.Count(1, 10, 100, 4.0);
  state.BeginMean();
  EXPECT_TRUE(state.Evaluated(1, 0.25, metrics));
  state.AddBestMetrics({{"test/mrr", 0.125}});
  state.Count(2, 20, 200, 3.0);
  EXPECT_FALSE(state.Evaluated(2, 0.25, {}));
  state.Count(3, 30, 300, 1.5);

  CheckpointManifest manifest;
  state.Save(&manifest);
  EXPECT_EQ(manifest.step(), 3u);
  EXPECT_EQ(manifest.samples_consumed(), 60u);
  EXPECT_EQ(manifest.tokens_consumed(), 600u);
  loop::RunState restored(train);
  restored.Restore(manifest);
  EXPECT_EQ(restored.step(), 3);
  EXPECT_EQ(restored.best_step(), 1);
  EXPECT_EQ(restored.best_epoch(), 1);
  EXPECT_EQ(restored.best_metrics(),
            (std::map<std::string, double>{
                {"valid/mrr", 0.25}, {"valid/hr@10", 0.5}, {"test/mrr", 0.125}}));
  EXPECT_TRUE(restored.has_steps_since_mean());
  EXPECT_EQ(restored.MeanLoss(), 2.25);
  restored.Count(4, 40, 400, 0);
  EXPECT_EQ(restored.MeanLoss(), 1.5);
  EXPECT_FALSE(restored.IsBest(0.25));
  EXPECT_FALSE(restored.Evaluated(2, 0.2, {}));
  EXPECT_FALSE(restored.patience_ended());
  EXPECT_FALSE(restored.Evaluated(3, 0.2, {}));
  EXPECT_TRUE(restored.patience_ended()) << "the one evaluation before the checkpoint counts";
  CheckpointManifest later;
  restored.Save(&later);
  EXPECT_EQ(later.samples_consumed(), 100u);
  EXPECT_EQ(later.tokens_consumed(), 1000u);
}

TEST(RunStateTest, WhatIsNotFiniteIsNeverTheBest) {
  const class tandem::Train train;
  loop::RunState state(train);
  for (const double selection : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    EXPECT_FALSE(state.IsBest(selection));
    state.Count(1, 10, 100, 4.0);
    EXPECT_FALSE(state.Evaluated(1, selection, {{"valid/mrr", selection}}));
  }
  EXPECT_EQ(state.best_step(), 0);
  EXPECT_TRUE(state.best_metrics().empty());
  EXPECT_TRUE(state.Evaluated(2, -7, {}));
}

TEST(RunStateTest, PatienceCountsEvaluationsThatAreNotFinite) {
  class tandem::Train train;
  train.set_patience(2);
  loop::RunState state(train);
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    EXPECT_FALSE(state.patience_ended());
    state.Count(epoch, 10, 100, 4.0);
    EXPECT_FALSE(state.Evaluated(epoch, std::nan(""), {}));
  }
  EXPECT_TRUE(state.patience_ended());
}

TEST(RunStateTest, SkippedStepsAreNotInTheMeanLossAndOweAnEvaluationAllTheSame) {
  const class tandem::Train train;
  loop::RunState state(train);
  state.Count(1, 10, 100, std::nan(""), /*skipped=*/true);
  EXPECT_TRUE(state.has_steps_since_mean());
  EXPECT_TRUE(std::isnan(state.MeanLoss()));
  state.Count(2, 10, 100, 3.0);
  CheckpointManifest manifest;
  state.Save(&manifest);
  loop::RunState restored(train);
  restored.Restore(manifest);
  restored.Count(3, 10, 100, 2.0);
  EXPECT_EQ(restored.step(), 3);
  EXPECT_EQ(restored.MeanLoss(), 2.5);
  restored.BeginMean();
  restored.Count(4, 10, 100, 7.0);
  EXPECT_EQ(restored.MeanLoss(), 7.0);
}

TEST(RunOutputTest, RecordsHaveTheContractsFieldsAndNoNan) {
  const support::TempFolder folder;
  ::testing::internal::CaptureStdout();
  auto output = report::RunOutput::Create(folder.path(), report::LogFormat::JSON);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->BeginAnew().ok());
  report::StepRecord record{.step = 7, .epoch = 2, .loss = 0.5};
  record.grad_norm = std::nan("");
  ASSERT_TRUE((*output)->Step(record, 10).ok());
  report::RunSummary summary;
  summary.job = "a \"quoted\"\nname";
  summary.status = "completed";
  summary.params_hash = absl::MakeUint128(1, 2);
  ASSERT_TRUE((*output)->Finish(summary).ok());
  output->reset();
  ::testing::internal::GetCapturedStdout();
  std::stringstream metrics, result;
  metrics << std::ifstream(folder.path() + "/metrics.jsonl").rdbuf();
  result << std::ifstream(folder.path() + "/summary.json").rdbuf();
  for (const char* field :
       {"step", "epoch", "loss", "lr", "grad_norm", "samples_per_second", "tokens_per_second",
        "compute_ms", "collective_ms", "pull_ms", "push_ms", "staleness"}) {
    EXPECT_NE(metrics.str().find("\"" + std::string(field) + "\":"), std::string::npos) << field;
  }
  EXPECT_NE(metrics.str().find("\"grad_norm\":null"), std::string::npos);
  EXPECT_NE(result.str().find("\"job\":\"a \\\"quoted\\\"\\u000aname\""), std::string::npos)
      << result.str();
  EXPECT_NE(result.str().find("\"params_hash\":\"00000000000000010000000000000002\""),
            std::string::npos);
}

TEST(RunOutputTest, TheShareOfAPeakIsSaidWhereThePeakIsKnown) {
  for (const double mfu : {0.0, 0.413}) {
    const support::TempFolder folder;
    ::testing::internal::CaptureStdout();
    auto output = report::RunOutput::Create(folder.path(), report::LogFormat::TEXT);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE((*output)->BeginAnew().ok());
    report::StepRecord record{.step = 10};
    record.mfu = mfu;
    ASSERT_TRUE((*output)->Step(record, 10).ok());
    output->reset();
    const std::string printed = ::testing::internal::GetCapturedStdout();
    std::stringstream metrics;
    metrics << std::ifstream(folder.path() + "/metrics.jsonl").rdbuf();
    EXPECT_EQ(printed.find("MFU 41%") != std::string::npos, mfu > 0) << printed;
    EXPECT_EQ(metrics.str().find("\"mfu\":0.413") != std::string::npos, mfu > 0) << metrics.str();
    EXPECT_EQ(metrics.str().find("mfu") != std::string::npos, mfu > 0);
  }
}

TEST(RunOutputTest, ANewRunStartsWithoutTheCheckpointsOfAnother) {
  const support::TempFolder folder;
  std::filesystem::create_directories(folder.path() + "/checkpoints/step-00000900");
  const auto output = report::RunOutput::Create(folder.path(), report::LogFormat::JSON);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->BeginAnew().ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoints"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/checkpoints.removed"));
}

// The run was killed in the middle of a line. The rest of the line looks like an early step's.
TEST(RunOutputTest, ATornLastLineIsDroppedWhenTheRunGoesOn) {
  const support::TempFolder folder;
  const std::string whole = "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.4}\n";
  for (const char* name : {"metrics.jsonl", "evaluations.jsonl"})
    folder.Write(name, whole + "{\"step\":1");
  {
    const auto output = report::RunOutput::Create(folder.path(), report::LogFormat::JSON);
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE((*output)->BeginAfter(2).ok());
  }
  for (const char* name : {"metrics.jsonl", "evaluations.jsonl"})
    EXPECT_EQ(ReadWhole(folder / name), whole) << name;
}

TEST(RunOutputTest, WhatAnOlderRunSaidOfItsEndGoesWhenARunBegins) {
  for (const bool resumes : {false, true}) {
    const support::TempFolder folder;
    for (const char* name : {"summary.json", "trace.json"}) folder.Write(name, "of the older run");
    const auto output = report::RunOutput::Create(folder.path(), report::LogFormat::JSON);
    ASSERT_TRUE(output.ok());
    for (const char* name : {"summary.json", "trace.json"})
      EXPECT_TRUE(std::filesystem::exists(folder / name)) << "it may yet be refused";
    ASSERT_TRUE((resumes ? (*output)->BeginAfter(2) : (*output)->BeginAnew()).ok());
    for (const char* name : {"summary.json", "trace.json"})
      EXPECT_FALSE(std::filesystem::exists(folder / name)) << name << resumes;
  }
}

TEST(RunOutputTest, AFolderThatCannotBeMadeIsAnErrorNamingIt) {
  const support::TempFolder folder;
  const std::string file = folder.Write("file", "x");
  const auto output = report::RunOutput::Create(file + "/out", report::LogFormat::JSON);
  EXPECT_EQ(output.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(output.status().message().find(file), std::string::npos);
}

TEST(ProgressTextTest, DurationsAndCountsReadWell) {
  EXPECT_EQ(report::DurationText(0.2), "0:00");
  EXPECT_EQ(report::DurationText(75), "1:15");
  EXPECT_EQ(report::DurationText(3700), "1:01:40");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(12345.6), "12,346");
  EXPECT_EQ(CountText(1234567), "1,234,567");
}

class CountingTask : public tasks::Task {
 public:
  int64_t steps_per_epoch() const override { return 4; }
  std::unique_ptr<tasks::StepInput> Prepare(int64_t step) const override {
    auto input = std::make_unique<tasks::StepInput>();
    input->global_samples = step;
    return input;
  }
  Variable LossSum(Context&, const tasks::StepInput&, int, const Variable&) const override {
    return Variable();
  }
  absl::StatusOr<tasks::Evaluation> Evaluate(tasks::EvaluationSplit,
                                             const tasks::EvaluationArgs&) override {
    return tasks::Evaluation();
  }
};

TEST(StepLoaderTest, GivesEveryStepInOrderThenNothing) {
  const CountingTask task;
  loop::StepLoader loader(&task, 3, 9);
  for (int64_t step = 3; step <= 9; ++step) EXPECT_EQ(loader.Next()->global_samples, step);
  EXPECT_EQ(loader.Next(), nullptr);
}

TEST(StepLoaderTest, CanBeDroppedEarly) {
  const CountingTask task;
  loop::StepLoader loader(&task, 1, 1000);
  EXPECT_EQ(loader.Next()->global_samples, 1);
}

}  // namespace
}  // namespace tandem
