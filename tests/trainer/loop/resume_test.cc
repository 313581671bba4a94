// Runs that are stopped, and resumed as if nothing had been.
#include <filesystem>
#include <optional>
#include <sstream>

#include "tests/trainer/loop/small_run.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/checkpoint/reader.h"

namespace tandem::loop {
namespace {

class ResumeTest : public ::testing::Test {
 protected:
  // The run's JSON lines would drown the test's own output.
  void SetUp() override { ::testing::internal::CaptureStdout(); }
  void TearDown() override { ::testing::internal::GetCapturedStdout(); }
};

TEST_F(ResumeTest, AStopAskedOfOneReplicaEndsAllAfterTheSameStep) {
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
      ends[rank] =
          RunReplica(job, data,
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
      const auto summary = RunReplica(job, data,
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
TEST_F(ResumeTest, AStopAtAnyPlaceAndAResumeEndAsTheUnbrokenRun) {
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
TEST_F(ResumeTest, AStoppedRunGoesOnInEveryMode) {
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

TEST_F(ResumeTest, AnEvaluationIsMadeUpAgainByARunThatWasKilledAfterIt) {
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

}  // namespace
}  // namespace tandem::loop
