// Schedules run on threads whose sends wait for their receives: what arrives, how much is alive,
// and whether the verifier is right about what ends and what stands still.
#include "trainer/parallel/pipeline/executor.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/parallel/pipeline/verifier.h"

namespace tandem::parallel {
namespace {

// Passes arrays whose numbers say which stage made them of which microbatch. Their sizes differ by
// microbatch.
class NumberedArrays : public StageRunner {
 public:
  NumberedArrays(const PipelineSchedule& schedule, int rank) : schedule_(schedule), rank_(rank) {}

  StageArrays ForInput(int, int microbatch) override { return Empty(microbatch); }
  StageArrays ForOutputGradient(int, int microbatch) override { return Empty(microbatch); }

  absl::StatusOr<StageArrays> Forward(int chunk, int microbatch, StageArrays input) override {
    const int stage = schedule_.StageOf(rank_, chunk);
    Expect(input, stage > 0, stage - 1, microbatch, 1);
    peak_ = std::max(peak_, ++live_);
    forward_.insert({chunk, microbatch});
    return Numbers(stage + 1 < schedule_.num_stages(), stage, microbatch, 1);
  }
  absl::StatusOr<StageArrays> Backward(int chunk, int microbatch, StageArrays gradient,
                                       bool weights) override {
    const int stage = schedule_.StageOf(rank_, chunk);
    Expect(gradient, stage + 1 < schedule_.num_stages(), stage + 1, microbatch, -1);
    EXPECT_TRUE(forward_.count({chunk, microbatch}) > 0);
    if (weights) RETURN_IF_ERROR(BackwardWeight(chunk, microbatch));
    return Numbers(stage > 0, stage, microbatch, -1);
  }
  absl::Status BackwardWeight(int chunk, int microbatch) override {
    EXPECT_EQ(forward_.erase({chunk, microbatch}), 1u);
    --live_;
    ++num_done_;
    return absl::OkStatus();
  }

  int peak() const { return peak_; }
  int num_done() const { return num_done_; }

 private:
  static StageArrays Empty(int microbatch) {
    return {Tensor::Empty(Shape{1000 + microbatch}, DType::F64),
            Tensor::Empty(Shape{microbatch + 1}, DType::F64)};
  }
  StageArrays Numbers(bool leaves, int stage, int microbatch, int sign) const {
    if (!leaves) return {};
    StageArrays arrays = Empty(microbatch);
    for (const Tensor& array : arrays) {
      for (int64_t i = 0; i < array.num_elements(); ++i)
        array.Set(i, sign * (stage * 1000.0 + microbatch));
    }
    return arrays;
  }
  void Expect(const StageArrays& arrays, bool arrives, int stage, int microbatch, int sign) const {
    const StageArrays expected = Numbers(arrives, stage, microbatch, sign);
    ASSERT_EQ(arrays.size(), expected.size());
    for (size_t a = 0; a < arrays.size(); ++a) {
      for (int64_t i = 0; i < expected[a].num_elements(); ++i)
        ASSERT_EQ(arrays[a].At(i), expected[a].At(i)) << "stage " << stage;
    }
  }

  const PipelineSchedule& schedule_;
  const int rank_;
  std::set<std::pair<int, int>> forward_;
  int live_ = 0, peak_ = 0, num_done_ = 0;
};

// Knows which ranks wait for messages that nobody has sent. Nothing is measured in time.
class Watcher {
 public:
  explicit Watcher(const PipelineSchedule& schedule)
      : schedule_(schedule), waiting_(schedule.ranks.size()), ended_(schedule.ranks.size()) {}

  // The rank's own observer.
  std::unique_ptr<StageObserver> Of(int rank) { return std::make_unique<OfRank>(this, rank); }
  void Ended(int rank) {
    absl::MutexLock lock(&mutex_);
    ended_[rank] = true;
  }
  // Waits until all ranks have ended, or none of the others can go on. True if they have ended.
  bool AwaitEnd() {
    absl::MutexLock lock(&mutex_);
    const auto settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      for (size_t rank = 0; rank < ended_.size(); ++rank) {
        if (!ended_[rank] && !StandsStill(static_cast<int>(rank))) return false;
      }
      return true;
    };
    mutex_.Await(absl::Condition(&settled));
    return std::all_of(ended_.begin(), ended_.end(), [](bool ended) { return ended; });
  }

 private:
  class OfRank : public StageObserver {
   public:
    OfRank(Watcher* watcher, int rank) : watcher_(*watcher), rank_(rank) {}
    void Waits(const StageOp& op) override {
      absl::MutexLock lock(&watcher_.mutex_);
      watcher_.waiting_[rank_] = op;
    }
    void Begins(const StageOp&) override {
      absl::MutexLock lock(&watcher_.mutex_);
      watcher_.waiting_[rank_].reset();
    }
    void Ends(const StageOp& op) override {
      absl::MutexLock lock(&watcher_.mutex_);
      const bool forward = op.work == StageWork::FORWARD;
      if (op.work != StageWork::BACKWARD_WEIGHT)
        watcher_.sent_.insert(
            {forward, watcher_.schedule_.StageOf(rank_, op.chunk), op.microbatch});
      if (++watcher_.num_done_[rank_] == watcher_.schedule_.ranks[rank_].size())
        watcher_.only_sends_.insert(rank_);
    }

   private:
    Watcher& watcher_;
    const int rank_;
  };

  bool StandsStill(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (only_sends_.count(rank) > 0) {  // its last messages may wait for a rank that stands still
      for (size_t other = 0; other < ended_.size(); ++other) {
        if (only_sends_.count(static_cast<int>(other)) == 0) return true;
      }
      return false;
    }
    if (!waiting_[rank]) return false;
    const StageOp& op = *waiting_[rank];
    const bool forward = op.work == StageWork::FORWARD;
    const int stage = schedule_.StageOf(rank, op.chunk) + (forward ? -1 : 1);
    return sent_.count({forward, stage, op.microbatch}) == 0;
  }

  const PipelineSchedule& schedule_;
  absl::Mutex mutex_;
  std::vector<std::optional<StageOp>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> ended_ ABSL_GUARDED_BY(mutex_);
  std::set<std::tuple<bool, int, int>> sent_ ABSL_GUARDED_BY(mutex_);
  std::map<int, size_t> num_done_ ABSL_GUARDED_BY(mutex_);
  std::set<int> only_sends_ ABSL_GUARDED_BY(mutex_);
};

struct RunResult {
  bool ended = false;  // else every rank stood still, and was ended
  std::vector<int> peaks, num_done;
};

RunResult RunOnThreads(const PipelineSchedule& schedule) {
  const int num_ranks = schedule.num_ranks();
  auto groups = comm::ThreadGroup::Create(num_ranks, "pp", absl::Seconds(60),
                                          comm::ThreadGroup::Sending::WAITS_FOR_RECV);
  std::vector<PipelineEdges> edges(static_cast<size_t>(num_ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto made = MakeEdges(*groups[rank], schedule.num_chunks > 1, absl::InfiniteFuture());
      ASSERT_TRUE(made.ok()) << made.status();
      edges[rank] = *std::move(made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
  Watcher watcher(schedule);
  RunResult result;
  result.peaks.resize(static_cast<size_t>(num_ranks));
  result.num_done.resize(static_cast<size_t>(num_ranks));
  std::vector<absl::Status> statuses(static_cast<size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadPool pool(1);
      Stream stream(&pool);
      NumberedArrays runner(schedule, rank);
      const auto observer = watcher.Of(rank);
      PipelineExecutor executor(schedule, rank, &edges[rank], &stream, observer.get());
      statuses[rank] = executor.Run(runner, absl::InfiniteFuture());
      result.peaks[rank] = runner.peak();
      result.num_done[rank] = runner.num_done();
      watcher.Ended(rank);
    });
  }
  result.ended = watcher.AwaitEnd();
  if (!result.ended) {
    for (PipelineEdges& of_rank : edges) of_rank.Abort(absl::CancelledError("stands still"));
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    const bool expected = result.ended ? status.ok() : absl::IsCancelled(status) || status.ok();
    EXPECT_TRUE(expected) << status;
  }
  return result;
}

void CheckRun(const PipelineSchedule& schedule, const ScheduleReport& report) {
  const RunResult result = RunOnThreads(schedule);
  ASSERT_TRUE(result.ended) << "stands still, though the verifier said that it ends";
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    EXPECT_EQ(result.peaks[rank], report.peak_live[rank] * schedule.num_chunks) << rank;
    EXPECT_EQ(result.num_done[rank], schedule.num_microbatches * schedule.num_chunks) << rank;
  }
}

TEST(PipelineExecutorTest, EverySchedulePassesItsArraysAndKeepsAsManyAliveAsTheVerifierSays) {
  for (const ScheduleKind kind : kScheduleKinds) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      for (const int m : {1, 2, 3, 8}) {
        const int chunks = kind == ScheduleKind::INTERLEAVED && ranks > 1 ? 3 : 1;
        const PipelineSchedule schedule = MakeSchedule({kind, ranks, chunks, m});
        const auto report = VerifySchedule(schedule);
        ASSERT_TRUE(report.ok()) << report.status();
        CheckRun(schedule, *report);
      }
    }
  }
}

// Numbers from a fixed seed.
class Draw {
 public:
  explicit Draw(uint64_t number) : key_{17, number} {}
  int Below(int n) { return static_cast<int>(RandomBelow(key_, 0, next_++, n)); }

 private:
  const RandomKey key_;
  uint64_t next_ = 0;
};

// A schedule that some order of the ranks' operations made: every rank takes any operation whose
// message is the next one of its edge.
PipelineSchedule RandomSchedule(Draw& draw) {
  const int num_ranks = 2 + draw.Below(3), num_chunks = 1 + draw.Below(2),
            num_microbatches = 1 + draw.Below(4);
  PipelineSchedule schedule{num_chunks, num_microbatches, true, {}};
  schedule.ranks.resize(static_cast<size_t>(num_ranks));
  const int num_stages = schedule.num_stages();
  const bool split = draw.Below(2) == 1;
  // By direction and receiving rank: the messages on their way, as (stage, microbatch).
  std::map<std::pair<bool, int>, std::deque<std::pair<int, int>>> edges;
  std::set<std::tuple<StageWork, int, int>> done;
  const auto can_run = [&](int rank, const StageOp& op) {
    const int stage = schedule.StageOf(rank, op.chunk);
    const bool forward = op.work == StageWork::FORWARD;
    if (done.count({op.work, stage, op.microbatch}) > 0) return false;
    if (op.work == StageWork::BACKWARD_WEIGHT)
      return done.count({StageWork::BACKWARD_INPUT, stage, op.microbatch}) > 0;
    if (!forward && done.count({StageWork::FORWARD, stage, op.microbatch}) == 0) return false;
    if (stage == (forward ? 0 : num_stages - 1)) return true;
    const auto& edge = edges[{forward, rank}];
    return !edge.empty() && edge.front() == std::pair(stage, op.microbatch);
  };
  std::vector<StageWork> works = {StageWork::FORWARD};
  if (split)
    works.insert(works.end(), {StageWork::BACKWARD_INPUT, StageWork::BACKWARD_WEIGHT});
  else
    works.push_back(StageWork::BACKWARD);
  const size_t total = works.size() * static_cast<size_t>(num_stages * num_microbatches);
  while (done.size() < total) {
    std::vector<std::pair<int, StageOp>> able;
    for (int stage = 0; stage < num_stages; ++stage) {
      for (int m = 0; m < num_microbatches; ++m) {
        for (const StageWork work : works) {
          const StageOp op{work, schedule.ChunkOf(stage), m};
          if (can_run(schedule.RankOf(stage), op)) able.emplace_back(schedule.RankOf(stage), op);
        }
      }
    }
    const auto& [rank, op] = able[draw.Below(static_cast<int>(able.size()))];
    const int stage = schedule.StageOf(rank, op.chunk);
    const bool forward = op.work == StageWork::FORWARD;
    schedule.ranks[rank].push_back(op);
    done.insert({op.work, stage, op.microbatch});
    if (op.work == StageWork::BACKWARD_WEIGHT) continue;
    if (stage != (forward ? 0 : num_stages - 1)) edges[{forward, rank}].pop_front();
    const int to = forward ? stage + 1 : stage - 1;
    if (to >= 0 && to < num_stages)
      edges[{forward, schedule.RankOf(to)}].push_back({to, op.microbatch});
  }
  return schedule;
}

// Moves some operations of some ranks to earlier places.
void MoveSome(PipelineSchedule& schedule, Draw& draw) {
  for (int change = draw.Below(3) + 1; change > 0; --change) {
    std::vector<StageOp>& ops = schedule.ranks[draw.Below(schedule.num_ranks())];
    const int from = draw.Below(static_cast<int>(ops.size())), to = draw.Below(from + 1);
    std::rotate(ops.begin() + to, ops.begin() + from, ops.begin() + from + 1);
  }
}

// Puts the forward and backward operations of every rank together anew. Both keep their orders, so
// messages do too; what remains to go wrong is a circle of waiting ranks.
void Mix(PipelineSchedule& schedule, Draw& draw) {
  for (std::vector<StageOp>& ops : schedule.ranks) {
    const auto backward = std::stable_partition(
        ops.begin(), ops.end(), [](const StageOp& op) { return op.work == StageWork::FORWARD; });
    const std::vector<StageOp> forward(ops.begin(), backward), rest(backward, ops.end());
    std::set<std::pair<int, int>> ran;
    size_t f = 0, r = 0;
    ops.clear();
    while (f < forward.size() || r < rest.size()) {
      const bool may_go_back =
          r < rest.size() && ran.count({rest[r].chunk, rest[r].microbatch}) > 0;
      if (f == forward.size() || (may_go_back && draw.Below(2) == 0)) {
        ops.push_back(rest[r++]);
      } else {
        ran.insert({forward[f].chunk, forward[f].microbatch});
        ops.push_back(forward[f++]);
      }
    }
  }
}

TEST(PipelineExecutorTest, RandomSchedulesEndOrStandStillAsTheVerifierSays) {
  std::map<std::string, int> verdicts;
  for (uint64_t number = 0; number < 300; ++number) {
    Draw draw(number);
    PipelineSchedule schedule = RandomSchedule(draw);
    const bool broken = number % 2 == 1;
    if (number % 4 == 1) MoveSome(schedule, draw);
    if (number % 4 == 3) Mix(schedule, draw);
    const auto report = VerifySchedule(schedule);
    ASSERT_TRUE(broken || report.ok()) << number << ": " << report.status();
    if (report.ok()) {
      ++verdicts["end"];
      CheckRun(schedule, *report);
    } else if (absl::IsFailedPrecondition(report.status())) {
      ++verdicts["deadlock"];
      EXPECT_FALSE(RunOnThreads(schedule).ended) << number << ": " << report.status();
    } else {
      ++verdicts["refused"];
    }
    if (HasFatalFailure()) return;
  }
  std::printf("300 random schedules: %d end, %d deadlock, %d are refused for their order\n",
              verdicts["end"], verdicts["deadlock"], verdicts["refused"]);
  EXPECT_GE(verdicts["deadlock"], 30);
}

}  // namespace
}  // namespace tandem::parallel
