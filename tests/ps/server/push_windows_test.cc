// Which pushes a server knows: windows and their edges, restarts, saving and loading, and long
// random histories compared with a set.
#include "ps/server/push_windows.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "gtest/gtest.h"

namespace tandem::ps {
namespace {

ShardSet Shards(std::initializer_list<size_t> shards) {
  ShardSet set;
  for (size_t shard : shards) set.set(shard);
  return set;
}

PushWindow Window(std::initializer_list<uint64_t> sequences) {
  PushWindow window;
  for (uint64_t sequence : sequences) window.Insert(sequence);
  return window;
}

TEST(PushWindowTest, ReachesBackFromTheHighestSequence) {
  PushWindow window;
  EXPECT_TRUE(window.empty());
  EXPECT_TRUE(window.Reaches(1));
  EXPECT_FALSE(window.Contains(1));
  window.Insert(1);
  window.Insert(256);
  EXPECT_TRUE(window.Reaches(1));
  EXPECT_TRUE(window.Contains(1));
  window.Insert(257);
  EXPECT_FALSE(window.Reaches(1));
  EXPECT_TRUE(window.Reaches(2));
  EXPECT_FALSE(window.Contains(2));
  window.Insert(2);
  EXPECT_TRUE(window.Contains(2) && window.Contains(256) && window.Contains(257));
  window.Insert(512);
  EXPECT_TRUE(window.Contains(257) && window.Contains(512));
  EXPECT_EQ(window.applied().count(), 2u);
  window.Insert(uint64_t{1} << 39);
  EXPECT_EQ(window.applied().count(), 1u);
}

TEST(PushWindowTest, MergedWindowsContainWhatEitherDoes) {
  for (const auto& [a, b] : {std::pair(Window({3, 5, 9}), Window({5, 7, 200})),
                             std::pair(Window({3, 5, 9}), Window({400}))}) {
    PushWindow forwards = a, backwards = b;
    forwards.Merge(b);
    backwards.Merge(a);
    for (const PushWindow& merged : {forwards, backwards}) {
      EXPECT_EQ(merged.highest(), std::max(a.highest(), b.highest()));
      for (uint64_t sequence = 1; sequence <= merged.highest(); ++sequence) {
        if (!merged.Reaches(sequence)) continue;
        const bool expected = a.Contains(sequence) || (b.Reaches(sequence) && b.Contains(sequence));
        EXPECT_EQ(merged.Contains(sequence), expected) << sequence;
      }
    }
  }
  PushWindow empty;
  empty.Merge(Window({3, 5}));
  EXPECT_EQ(empty.applied().count(), 2u);
}

TEST(PushWindowTest, DamagedOnesAreTold) {
  EXPECT_TRUE(PushWindow::IsWindow(3, 0b111));
  EXPECT_FALSE(PushWindow::IsWindow(3, 0b1001)) << "sequence 0";
  EXPECT_FALSE(PushWindow::IsWindow(3, 0b110)) << "the highest is missing";
  EXPECT_FALSE(PushWindow::IsWindow(0, 1));
  EXPECT_FALSE(PushWindow::IsWindow(uint64_t{1} << 40, 1));
  EXPECT_TRUE(PushWindow::IsWindow(256, PushWindow::Bits().set()));
  EXPECT_FALSE(PushWindow::IsWindow(255, PushWindow::Bits().set()));
}

class PushWindowsTest : public testing::Test {
 protected:
  PushWindowsTest() { windows_.SetTrainers(3); }
  PushWindows::Known Find(uint32_t trainer, uint64_t sequence, const ShardSet& shards) {
    const auto known = windows_.Find(trainer, sequence, shards);
    EXPECT_TRUE(known.ok()) << known.status();
    return known.value_or(PushWindows::Known());
  }
  PushWindows windows_;
};

TEST_F(PushWindowsTest, PushIsPendingUntilTheFoldAndOfItsShardsOnly) {
  windows_.Add(1, 1, 5, Shards({0, 9}));
  windows_.Add(1, 1, 5, Shards({1023}));
  EXPECT_TRUE(windows_.HasPending(1));
  EXPECT_EQ(Find(1, 5, Shards({0, 1, 1023})).pending, Shards({0, 1023}));
  EXPECT_EQ(Find(1, 5, Shards({1})).pending_step, 1u);
  EXPECT_TRUE(windows_.Save().empty()) << "what is pending is in no row yet";
  EXPECT_TRUE(Find(0, 5, Shards({0})).pending.none());
  windows_.Add(0, 1, 5, Shards({9}));
  windows_.Add(1, 2, 6, Shards({9}));
  windows_.Fold(1, 1);
  EXPECT_TRUE(windows_.HasPending(0) && windows_.HasPending(1)) << "other trainers, other steps";
  EXPECT_TRUE(Find(1, 6, Shards({9})).applied.none());
  windows_.Fold(1, 2);
  EXPECT_FALSE(windows_.HasPending(1));
  EXPECT_TRUE(Find(1, 6, Shards({9})).applied.any());
  const PushWindows::Known known = Find(1, 5, Shards({0, 1, 1023}));
  EXPECT_TRUE(known.pending.none());
  EXPECT_EQ(known.applied, Shards({0, 1023}));
  EXPECT_TRUE(Find(1, 4, Shards({0, 1, 1023})).applied.none());
  EXPECT_TRUE(Find(1, 7, Shards({0, 1, 1023})).applied.none());
}

TEST_F(PushWindowsTest, OlderSequenceOfALaterStepIsAppliedAndThenTooLateToTell) {
  windows_.Add(0, 1, 1000, Shards({7}));
  windows_.Add(0, 2, 3, Shards({7}));  // steps of PERMIT are open side by side
  windows_.Fold(0, 1);
  windows_.Fold(0, 2);
  EXPECT_TRUE(Find(0, 1000, Shards({7})).applied.any());
  EXPECT_TRUE(absl::IsFailedPrecondition(windows_.Find(0, 3, Shards({7})).status()));
}

TEST_F(PushWindowsTest, PushBeforeTheWindowIsRefusedNamingIt) {
  windows_.Add(2, 1, 1000, Shards({7}));
  windows_.Fold(2, 1);
  EXPECT_TRUE(windows_.Find(2, 745, Shards({7})).ok());
  EXPECT_TRUE(windows_.Find(2, 744, Shards({8})).ok()) << "another shard has another window";
  const absl::Status status = windows_.Find(2, 744, Shards({7, 8})).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(status.message(),
            "push 744 of trainer 2 comes too late: virtual shard 7 remembers its pushes 745 to "
            "1000 only and "
            "cannot tell whether it was applied");
}

TEST_F(PushWindowsTest, PendingPushesAreKnownHoweverMany) {
  for (uint64_t sequence = 1; sequence <= 1000; ++sequence)
    windows_.Add(0, 1, sequence, Shards({3}));
  for (uint64_t sequence = 1; sequence <= 1000; ++sequence)
    EXPECT_TRUE(Find(0, sequence, Shards({3})).pending.any());
}

TEST_F(PushWindowsTest, RestartForgetsOneTrainer) {
  for (uint32_t trainer : {0, 1}) {
    windows_.Add(trainer, 1, 300, Shards({3}));
    windows_.Fold(trainer, 1);
  }
  windows_.Restart(0, 2);
  EXPECT_EQ(windows_.incarnation(0), 2u);
  EXPECT_TRUE(Find(0, 300, Shards({3})).applied.none());
  EXPECT_TRUE(Find(0, 1, Shards({3})).applied.none());
  EXPECT_TRUE(Find(1, 300, Shards({3})).applied.any());
}

TEST_F(PushWindowsTest, SavedWindowsAreRestoredForThatIncarnationOrALaterOne) {
  windows_.Restart(1, 4);
  windows_.Add(0, 1, 8, Shards({3, 5}));
  windows_.Add(1, 1, 9, Shards({3}));
  for (uint32_t trainer : {0, 1}) windows_.Fold(trainer, 1);
  windows_.Add(0, 2, 10, Shards({3}));
  const std::vector<ShardWindow> saved = windows_.Save();
  ASSERT_EQ(saved.size(), 3u);
  EXPECT_EQ(std::tuple(saved[1].shard, saved[1].trainer, saved[1].incarnation),
            std::tuple(3u, 1u, 4u));

  for (uint32_t incarnation : {0, 4, 5}) {
    PushWindows other;
    other.SetTrainers(2);
    if (incarnation != 0) other.Restart(1, incarnation);
    other.Add(0, 1, 77, Shards({3}));
    other.Fold(0, 1);
    ASSERT_TRUE(other.Restore(saved).ok());
    EXPECT_EQ(other.Find(0, 8, Shards({3, 5}))->applied, Shards({3, 5}));
    EXPECT_TRUE(other.Find(0, 10, Shards({3}))->applied.none());
    EXPECT_TRUE(other.Find(0, 77, Shards({3}))->applied.none()) << "replaced";
    EXPECT_EQ(other.incarnation(1), std::max(4u, incarnation));
    EXPECT_EQ(other.Find(1, 9, Shards({3}))->applied.any(), incarnation <= 4);
  }
  PushWindows fewer;
  fewer.SetTrainers(1);
  const absl::Status status = fewer.Restore(saved);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_NE(status.message().find("trainer 1, but this job has 1 trainers"),
            absl::string_view::npos)
      << status;
  EXPECT_TRUE(fewer.Save().empty());
}

// A sender that repeats, reorders and recuts its retries, compared with a set of all applied
// pushes.
class PushHistoryTest : public testing::TestWithParam<uint64_t> {};

TEST_P(PushHistoryTest, IsAsAPlainSetSays) {
  uint64_t state = GetParam();
  const auto draw = [&state](uint64_t below) {
    return Fmix64(state += 0x9e3779b97f4a7c15) % below;
  };
  PushWindows windows;
  windows.SetTrainers(2);
  std::set<std::tuple<uint32_t, uint64_t, uint32_t>> applied, pending;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> highest;  // by trainer and shard
  uint64_t next[2] = {1, 1};
  size_t repeated = 0, refused = 0, partial = 0;
  for (int round = 0; round < 4000; ++round) {
    const uint32_t trainer = static_cast<uint32_t>(draw(2));
    const uint64_t back = draw(8) == 0 ? draw(600) : draw(6);
    if (draw(3) == 0) next[trainer] += draw(40) == 0 ? 100 + draw(400) : 1;
    const uint64_t sequence = next[trainer] > back ? next[trainer] - back : 1;
    ShardSet shards;
    for (uint64_t i = draw(4); i > 0; --i) shards.set(draw(4) * 341);
    bool reached = true;
    ShardSet expected_applied, expected_pending;
    for (uint32_t shard = 0; shard < shards.size(); ++shard) {
      if (!shards.test(shard)) continue;
      reached &= sequence + 256 > highest[{trainer, shard}];
      expected_applied.set(shard, applied.count({trainer, sequence, shard}) != 0);
      expected_pending.set(shard, pending.count({trainer, sequence, shard}) != 0);
    }
    const auto known = windows.Find(trainer, sequence, shards);
    ASSERT_EQ(known.ok(), reached) << known.status();
    if (!reached) {
      ++refused;
      continue;
    }
    ASSERT_EQ(known->applied, expected_applied);
    ASSERT_EQ(known->pending, expected_pending);
    const ShardSet fresh = shards & ~known->applied & ~known->pending;
    repeated += fresh.none() && shards.any();
    partial += fresh.any() && fresh != shards;
    windows.Add(trainer, 1, sequence, fresh);
    for (uint32_t shard = 0; shard < shards.size(); ++shard) {
      if (fresh.test(shard)) pending.insert({trainer, sequence, shard});
    }
    if (draw(20) == 0) {
      for (uint32_t each : {0, 1}) windows.Fold(each, 1);
      for (const auto& [of, number, shard] : pending)
        highest[{of, shard}] = std::max(highest[{of, shard}], number);
      applied.merge(pending);
      pending.clear();
      if (draw(5) == 0) {
        const std::vector<ShardWindow> saved = windows.Save();
        windows = PushWindows();
        windows.SetTrainers(2);
        ASSERT_TRUE(windows.Restore(saved).ok());
      }
    }
  }
  EXPECT_GT(repeated, 200u);
  EXPECT_GT(refused, 20u);
  EXPECT_GT(partial, 20u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PushHistoryTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace tandem::ps
