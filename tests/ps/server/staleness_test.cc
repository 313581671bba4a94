// Proves the consistency modes' bounds, which other parameter servers offer but do not assert.
// Compares a gate with a model that knows no clocks, over thousands of random interleavings of
// trainers, one of them slow.
// Also runs real trainers over servers, with rows that tell their own age.
#include <algorithm>
#include <array>
#include <bitset>
#include <set>
#include <string>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "ps/server/consistency_controller.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

ConsistencySpec Spec(ConsistencySpec::Mode mode, uint32_t staleness = 0) {
  ConsistencySpec spec;
  spec.set_mode(mode);
  spec.set_staleness(staleness);
  return spec;
}

std::string NameOf(const ConsistencySpec& spec) {
  return ConsistencySpec::Mode_Name(spec.mode()) + std::to_string(spec.staleness());
}

const std::vector<ConsistencySpec>& AllModes() {
  static const auto& modes = *new std::vector<ConsistencySpec>{
      Spec(ConsistencySpec::BSP),       Spec(ConsistencySpec::SSP, 0),
      Spec(ConsistencySpec::SSP, 1),    Spec(ConsistencySpec::SSP, 3),
      Spec(ConsistencySpec::SSP, 7),    Spec(ConsistencySpec::ASP),
      Spec(ConsistencySpec::PERMIT, 1), Spec(ConsistencySpec::PERMIT, 2),
      Spec(ConsistencySpec::PERMIT, 5)};
  return modes;
}

// The state of each trainer's steps, as sets with one bit per step. Decides whether a trainer's
// pull may stop waiting.
struct Model {
  ConsistencySpec spec;
  uint32_t num_trainers;
  std::array<std::bitset<64>, 4> pulled, applied;

  bool OwnApplied(uint32_t trainer, uint64_t up_to) const {
    for (uint64_t step = 1; step <= up_to; ++step) {
      if (!applied[trainer].test(step)) return false;
    }
    return true;
  }
  bool AllApplied(uint64_t up_to) const {
    for (uint32_t t = 0; t < num_trainers; ++t) {
      if (!OwnApplied(t, up_to)) return false;
    }
    return true;
  }
  uint64_t Outstanding(uint32_t trainer) const {
    return (pulled[trainer] & ~applied[trainer]).count();
  }
  bool MayPull(uint32_t trainer, uint64_t step) const {
    switch (spec.mode()) {
      case ConsistencySpec::BSP:
        return AllApplied(step - 1);
      case ConsistencySpec::SSP:
        return OwnApplied(trainer, step - 1) &&
               AllApplied(step > spec.staleness() ? step - 1 - spec.staleness() : 0);
      case ConsistencySpec::ASP:
        return OwnApplied(trainer, step - 1);
      default:
        return Outstanding(trainer) < spec.staleness();
    }
  }
};

struct Schedule {
  uint64_t wrongly_admitted = 0, wrongly_parked = 0, most_missing = 0, most_outstanding = 0,
           admitted = 0;
  bool finished = false;
};

// Trainers pull as far ahead as they may, push and commit, in an order drawn from `seed`. One
// trainer rarely gets its turn.
// `gate_spec` rules the controller, `model_spec` the model.
Schedule RunSchedule(uint64_t seed, const ConsistencySpec& gate_spec,
                     const ConsistencySpec& model_spec) {
  constexpr uint64_t kSteps = 12;
  const uint64_t ahead =
      (gate_spec.mode() == ConsistencySpec::PERMIT ? gate_spec.staleness() : 1) + 1;
  uint64_t state = seed;
  const auto draw = [&state](uint64_t below) {
    return Fmix64(state += 0x9e3779b97f4a7c15) % below;
  };
  const uint32_t num_trainers = 2 + static_cast<uint32_t>(draw(3)),
                 slow = static_cast<uint32_t>(draw(num_trainers));
  ConsistencyController gate;
  gate.SetTrainers(num_trainers, gate_spec);
  Model model{model_spec, num_trainers, {}, {}};
  struct Trainer {
    uint64_t asked = 0, committed = 0, sequence = 0;
    bool waits_for_commit = false;
    std::set<uint64_t> waiting;
  };
  std::vector<Trainer> trainers(num_trainers);
  Schedule result;

  const auto note_pull = [&](uint32_t t, uint64_t step) {
    result.wrongly_admitted += !model.MayPull(t, step);
    model.pulled[t].set(step);
    uint64_t reached = 0;
    while (reached < step - 1 && model.AllApplied(reached + 1)) ++reached;
    result.most_missing = std::max(result.most_missing, step - 1 - reached);
    result.most_outstanding = std::max(result.most_outstanding, model.Outstanding(t));
    ++result.admitted;
  };
  const auto look_at_waiting = [&] {
    for (uint32_t t = 0; t < num_trainers; ++t) {
      for (auto it = trainers[t].waiting.begin(); it != trainers[t].waiting.end();) {
        if (gate.AdmitWaitingPull(Caller{t}, *it)) {
          note_pull(t, *it);
          it = trainers[t].waiting.erase(it);
        } else {
          result.wrongly_parked += model.MayPull(t, *it);
          ++it;
        }
      }
    }
  };
  for (int turn = 0; turn < 20000 && !result.finished; ++turn) {
    const uint32_t t = static_cast<uint32_t>(draw(num_trainers));
    if (t == slow && draw(8) != 0) continue;
    Trainer& trainer = trainers[t];
    const uint64_t open = trainer.committed + 1;
    if (trainer.asked < kSteps && trainer.asked < trainer.committed + ahead && draw(2) == 0) {
      const uint64_t step = ++trainer.asked;
      const auto verdict = gate.AdmitPull(Caller{t}, step);
      EXPECT_TRUE(verdict.ok()) << verdict.status();
      if (*verdict == ConsistencyController::PullVerdict::NOW)
        note_pull(t, step);
      else
        trainer.waiting.insert(step);
      result.wrongly_parked +=
          *verdict == ConsistencyController::PullVerdict::LATER && model.MayPull(t, step);
    } else if (!trainer.waits_for_commit && trainer.committed < kSteps &&
               model.pulled[t].test(open)) {
      if (draw(2) == 0) {
        EXPECT_TRUE(gate.AdmitPush({t}, open, ++trainer.sequence, ShardSet().set(draw(1024))).ok());
        continue;
      }
      const auto committed = gate.AdmitCommit({t}, {open, {}, 1, false});
      EXPECT_TRUE(committed.ok()) << committed.status();
      trainer.waits_for_commit = *committed == ConsistencyController::RoundVerdict::WAIT;
      if (trainer.waits_for_commit) continue;
      for (uint32_t each = 0; each < num_trainers; ++each) {
        if (each != t && !trainers[each].waits_for_commit) continue;
        trainers[each].waits_for_commit = false;
        model.applied[each].set(++trainers[each].committed);
      }
      look_at_waiting();
    }
    result.finished = std::all_of(trainers.begin(), trainers.end(),
                                  [](const Trainer& each) { return each.committed == kSteps; });
  }
  EXPECT_EQ(gate.staleness().max(), result.most_missing);
  EXPECT_EQ(gate.staleness().total(), result.admitted);
  EXPECT_EQ(gate.outstanding().max(), result.most_outstanding);
  return result;
}

class StalenessModelTest : public testing::TestWithParam<ConsistencySpec> {};

TEST_P(StalenessModelTest, NoPullOfAnyScheduleExceedsTheBoundNorWaitsWithoutNeed) {
  const ConsistencySpec spec = GetParam();
  uint64_t most_missing = 0, most_outstanding = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const Schedule schedule = RunSchedule(seed, spec, spec);
    ASSERT_EQ(schedule.wrongly_admitted, 0u) << "seed " << seed;
    ASSERT_EQ(schedule.wrongly_parked, 0u) << "seed " << seed;
    ASSERT_TRUE(schedule.finished) << "seed " << seed << ": trainers wait for each other for ever";
    most_missing = std::max(most_missing, schedule.most_missing);
    most_outstanding = std::max(most_outstanding, schedule.most_outstanding);
  }
  // Trainers reach the bound, so the bound is tight. In ASP and PERMIT a slow trainer falls behind
  // by all steps that there are.
  switch (spec.mode()) {
    case ConsistencySpec::BSP:
      EXPECT_EQ(most_missing, 0u);
      break;
    case ConsistencySpec::SSP:
      EXPECT_EQ(most_missing, spec.staleness());
      break;
    default:
      EXPECT_EQ(most_missing, 11u);
  }
  EXPECT_EQ(most_outstanding, spec.mode() == ConsistencySpec::PERMIT ? spec.staleness() : 1u);
}

// The test above notices a bound that is one step too wide or too narrow.
TEST(StalenessMutantTest, BoundPlusOneIsCaught) {
  for (const ConsistencySpec& spec : AllModes()) {
    if (spec.mode() == ConsistencySpec::ASP) continue;
    ConsistencySpec wider = spec;
    wider.set_staleness(spec.staleness() + 1);
    if (spec.mode() == ConsistencySpec::BSP) wider.set_mode(ConsistencySpec::SSP);
    uint64_t too_early = 0, too_late = 0;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      too_early += RunSchedule(seed, wider, spec).wrongly_admitted;
      too_late += RunSchedule(seed, spec, wider).wrongly_parked;
    }
    EXPECT_GT(too_early, 0u) << NameOf(spec);
    // BSP applies own and others' commits together: nothing lies between its bound and the next.
    EXPECT_TRUE(too_late > 0 || spec.mode() == ConsistencySpec::BSP) << NameOf(spec);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, StalenessModelTest, testing::ValuesIn(AllModes()),
                         [](const auto& info) { return NameOf(info.param); });

constexpr uint32_t kTrainers = 3, kSlow = 1;
constexpr uint64_t kSteps = 20;

// The trainers' progress, by which the slow trainer lets the others run into the bound. Nothing
// sleeps or measures time.
class Progress {
 public:
  void Commit(uint32_t trainer) {
    absl::MutexLock lock(&mutex_);
    ++committed_[trainer];
  }
  // Waits until every other trainer has committed `step`, or all its steps.
  bool AwaitOthers(uint64_t step) {
    absl::MutexLock lock(&mutex_);
    auto there = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      for (uint32_t t = 0; t < kTrainers; ++t) {
        if (t != kSlow && committed_[t] < std::min(step, kSteps)) return false;
      }
      return true;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), absl::Seconds(20));
  }

 private:
  absl::Mutex mutex_;
  uint64_t committed_[kTrainers] ABSL_GUARDED_BY(mutex_) = {};
};

absl::Time Deadline() { return absl::Now() + absl::Seconds(20); }

// Row t + 1 counts trainer t's commits: it starts at 0 and each step of trainer t adds 1. So rows
// show their own age.
// Up to `ahead` pulls are under way before their step.
void TrainAndLook(const Clients& client, uint32_t trainer, const ConsistencySpec& spec,
                  Progress* progress) {
  TableSpec table = MakeTableSpec(1, 1);
  table.set_init_stddev(0);
  ASSERT_TRUE(client.tables->CreateTables({table}, absl::Seconds(20)).ok());
  const uint64_t bound = spec.staleness(),
                 ahead = spec.mode() == ConsistencySpec::PERMIT ? bound : 1;
  std::vector<uint64_t> ids;
  for (uint64_t t = 0; t < kTrainers; ++t) ids.push_back(t + 1);
  std::vector<std::vector<float>> rows(kSteps + 1, std::vector<float>(kTrainers));
  std::vector<rpc::Future<rpc::Done>> pulls(kSteps + 1);
  const auto pull = [&](uint64_t step) {
    if (step <= kSteps) pulls[step] = client.rows->Pull(step, true, {{1, ids, rows[step].data()}});
  };
  for (uint64_t step = 1; step <= ahead; ++step) pull(step);
  const std::vector<uint64_t> own = {trainer + 1};
  const float minus_one = -1;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    const auto pulled = pulls[step].Wait(Deadline());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    for (uint32_t t = 0; t < kTrainers; ++t) {
      const uint64_t seen = static_cast<uint64_t>(rows[step][t]);
      const bool is_own = t == trainer;
      switch (spec.mode()) {
        case ConsistencySpec::BSP:
          ASSERT_EQ(seen, step - 1);
          break;
        case ConsistencySpec::SSP:
          ASSERT_GE(seen + (is_own ? 0 : bound), step - 1) << "step " << step;
          break;
        case ConsistencySpec::ASP:
          ASSERT_GE(seen, is_own ? step - 1 : 0) << "step " << step;
          break;
        default:
          ASSERT_GE(seen + (is_own ? bound : step), step) << "step " << step;
      }
      ASSERT_TRUE(seen < step || !is_own) << "step " << step;
    }
    if (trainer == kSlow) {
      // The step that the other trainers can reach without this step's commit.
      const uint64_t others = spec.mode() == ConsistencySpec::BSP   ? step - 1
                              : spec.mode() == ConsistencySpec::SSP ? step + bound
                                                                    : kSteps;
      ASSERT_TRUE(progress->AwaitOthers(others))
          << "step " << step << ": the others did not get as far as the bound allows";
    }
    ASSERT_TRUE(client.rows->Push(step, trainer, {{1, own, &minus_one}}).Wait(Deadline()).ok());
    const auto committed = client.rows->Commit({step, {{1, 1.0f}}, 1, false}).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
    progress->Commit(trainer);
    pull(step + ahead);
  }
}

void ExpectStatistics(const Clients& client, const ConsistencySpec& spec, int num_servers) {
  const auto statistics = client.tables->Statistics().Wait(Deadline());
  ASSERT_TRUE(statistics.ok()) << statistics.status();
  switch (spec.mode()) {
    case ConsistencySpec::BSP:
      EXPECT_EQ(statistics->staleness().max(), 0u);
      break;
    case ConsistencySpec::SSP:
      EXPECT_EQ(statistics->staleness().max(), spec.staleness());
      break;
    default:
      EXPECT_EQ(statistics->staleness().max(), kSteps - 1);
  }
  EXPECT_EQ(statistics->outstanding().max(),
            spec.mode() == ConsistencySpec::PERMIT ? spec.staleness() : 1u);
  EXPECT_EQ(std::vector<uint64_t>(statistics->clocks().begin(), statistics->clocks().end()),
            std::vector<uint64_t>(kTrainers, kSteps));
  EXPECT_EQ(statistics->pushes(), kTrainers * kSteps);
  EXPECT_EQ(statistics->repeated_pushes(), 0u);
  const uint64_t commits = spec.mode() == ConsistencySpec::BSP ? kSteps : kTrainers * kSteps;
  EXPECT_EQ(statistics->commits(), commits * static_cast<uint64_t>(num_servers));
  ASSERT_EQ(statistics->tables_size(), 1);
  EXPECT_EQ(statistics->tables(0).rows(), kTrainers);
  EXPECT_EQ(statistics->tables(0).name(), "table1");
  EXPECT_EQ(statistics->tables(0).bytes_per_row() * kTrainers,
            static_cast<double>(statistics->tables(0).memory_bytes()));
}

class StragglerTest : public testing::TestWithParam<ConsistencySpec> {
 protected:
  static void TrainAll(const std::vector<ClientStack>& clients) {
    Progress progress;
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kTrainers; ++t) {
      threads.emplace_back([&, t] { TrainAndLook(clients[t], t, GetParam(), &progress); });
    }
    for (auto& thread : threads) thread.join();
  }
};

TEST_P(StragglerTest, NoRowOfAServerIsOlderThanTheBound) {
  PsCluster cluster(2, 2);
  std::vector<ClientStack> clients;
  for (uint32_t t = 0; t < kTrainers; ++t) {
    clients.push_back(cluster.MakeClient(
        t, kTrainers, {.timeout = absl::Seconds(20), .consistency = GetParam()}));
  }
  TrainAll(clients);
  ExpectStatistics(clients[0], GetParam(), 2);
}

TEST_P(StragglerTest, NoRowOfALocalTableIsOlderThanTheBound) {
  TableHost host(2);
  std::vector<ClientStack> clients;
  for (uint32_t t = 0; t < kTrainers; ++t)
    clients.push_back(std::make_unique<LocalClient>(host, t, kTrainers, GetParam()));
  TrainAll(clients);
  ExpectStatistics(clients[0], GetParam(), 1);
}

// tensorflow/tensorflow#61129: trainers with uneven data end badly. Here a trainer that waits for a
// gone trainer learns so in time.
TEST(GoneTrainerTest, ItsClockHoldsNobodyLongerThanTheTimeout) {
  PsCluster cluster(1, 1);
  const ConsistencySpec spec = Spec(ConsistencySpec::SSP, 1);
  const auto gone = cluster.MakeClient(1, 2, {.timeout = absl::Seconds(20), .consistency = spec});
  const auto client =
      cluster.MakeClient(0, 2, {.timeout = absl::Milliseconds(200), .consistency = spec});
  for (RemoteClient* each : {gone.get(), client.get()})
    ASSERT_TRUE(each->CreateTables({MakeTableSpec(1, 1)}, absl::Seconds(20)).ok());
  const std::vector<uint64_t> ids = {7};
  float row = 0;
  for (uint64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(client->Pull(step, true, {{1, ids, &row}}).Wait(Deadline()).ok());
    ASSERT_TRUE(client->Commit({step, {{1, 1.0f}}, 1, false}).Wait(Deadline()).ok());
  }
  const absl::Status status = client->Pull(3, true, {{1, ids, &row}}).Wait(Deadline()).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(status.message().find("pull for step 3"), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(Modes, StragglerTest, testing::ValuesIn(AllModes()),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace tandem::ps
