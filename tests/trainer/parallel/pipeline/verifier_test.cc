// The schedules' published figures, and what the verifier says of broken schedules.
#include "trainer/parallel/pipeline/verifier.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

#include "absl/strings/match.h"

namespace tandem::parallel {
namespace {

bool Says(const absl::Status& status, const std::string& text) {
  return absl::StrContains(std::string(status.message()), text);
}

ScheduleReport Verified(const ScheduleOptions& options, const StageCosts& costs = {}) {
  const auto report = VerifySchedule(MakeSchedule(options), costs);
  EXPECT_TRUE(report.ok()) << NameOf(options.kind) << " " << options.num_ranks << " x "
                           << options.num_chunks << ", " << options.num_microbatches << ": "
                           << report.status();
  return report.ok() ? *report : ScheduleReport{};
}

struct Golden {
  ScheduleOptions options;
  double makespan, worst_idle;
  std::vector<double> peak_live;  // empty: not published
  StageCosts costs = {};
};

// Makespans by the closed forms of the papers: idle (p - 1)(F + B + W) of GPipe and 1F1B, that
// over v interleaved, (p - 1)(F + B - W) of ZB-H1.
TEST(VerifierTest, SchedulesHaveTheirPublishedFigures) {
  using enum ScheduleKind;
  const StageCosts uneven{1, 1.2, .8};
  const std::vector<Golden> all = {
      {{GPIPE, 2, 1, 4}, 15, 3, {4, 4}},
      {{ONE_F_ONE_B, 2, 1, 4}, 15, 3, {2, 1}},
      {{INTERLEAVED, 2, 2, 4}, 13.5, 1.5, {}},
      {{INTERLEAVED, 2, 4, 4}, 12.75, .75, {}},
      {{ZB_H1, 2, 1, 4}, 13, 1, {2, 2}},
      {{GPIPE, 4, 1, 8}, 33, 9, {8, 8, 8, 8}},
      {{ONE_F_ONE_B, 4, 1, 8}, 33, 9, {4, 3, 2, 1}},
      {{INTERLEAVED, 4, 2, 8}, 28.5, 4.5, {5.5, 4.5, 3.5, 2.5}},
      {{INTERLEAVED, 4, 4, 8}, 26.25, 2.25, {}},
      {{ZB_H1, 4, 1, 8}, 27, 3, {4, 4, 4, 4}},
      {{GPIPE, 4, 1, 16}, 57, 9, {}},
      {{ONE_F_ONE_B, 4, 1, 16}, 57, 9, {}},
      {{INTERLEAVED, 4, 2, 16}, 52.5, 4.5, {}},
      {{INTERLEAVED, 4, 4, 16}, 50.25, 2.25, {}},
      {{ZB_H1, 4, 1, 16}, 51, 3, {}},
      {{ONE_F_ONE_B, 8, 1, 32}, 117, 21, {8, 7, 6, 5, 4, 3, 2, 1}},
      {{INTERLEAVED, 8, 2, 32}, 106.5, 10.5, {}},
      {{INTERLEAVED, 8, 4, 32}, 101.25, 5.25, {}},
      {{ZB_H1, 8, 1, 32}, 103, 7, {8, 8, 8, 8, 8, 8, 8, 8}},
      {{ONE_F_ONE_B, 4, 1, 12}, 45, 9, {}},
      {{ZB_H1, 4, 1, 12}, 39, 3, {}},
      {{ONE_F_ONE_B, 4, 1, 8}, 33, 9, {}, uneven},
      {{INTERLEAVED, 4, 2, 8}, 28.5, 4.5, {}, uneven},
      {{INTERLEAVED, 4, 4, 8}, 26.25, 2.25, {}, uneven},
      {{ZB_H1, 4, 1, 8}, 28.2, 4.2, {}, uneven},
  };
  for (const Golden& golden : all) {
    const ScheduleReport report = Verified(golden.options, golden.costs);
    const std::string name = NameOf(golden.options.kind);
    EXPECT_NEAR(report.makespan, golden.makespan, 1e-9) << name;
    EXPECT_NEAR(*std::max_element(report.idle.begin(), report.idle.end()), golden.worst_idle, 1e-9)
        << name;
    EXPECT_NEAR(report.bubble(), golden.worst_idle / golden.makespan, 1e-9) << name;
    if (!golden.peak_live.empty()) {
      EXPECT_EQ(report.peak_live, golden.peak_live) << name;
    }
  }
}

// Counts below the ranks and no multiple of them too.
TEST(VerifierTest, EveryCountOfMicrobatchesRunsUnderEverySchedule) {
  for (const ScheduleKind kind : kScheduleKinds) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int chunks = 1; chunks <= (kind == ScheduleKind::INTERLEAVED && ranks > 1 ? 4 : 1);
           ++chunks) {
        for (int m = 1; m <= 20; ++m) {
          const ScheduleReport report = Verified({kind, ranks, chunks, m});
          for (int rank = 0; rank < ranks; ++rank)
            EXPECT_NEAR(report.makespan - report.idle[rank], 3 * m, 1e-9);
        }
      }
    }
  }
}

TEST(VerifierTest, OneChunkInterleavedIsOneForwardOneBackward) {
  for (const int m : {1, 3, 4, 9}) {
    EXPECT_EQ(MakeSchedule({ScheduleKind::INTERLEAVED, 4, 1, m}).ranks,
              MakeSchedule({ScheduleKind::ONE_F_ONE_B, 4, 1, m}).ranks);
  }
}

TEST(VerifierTest, BrokenListsAreNamed) {
  const auto broken = [](ScheduleKind kind, auto change) {
    PipelineSchedule schedule = MakeSchedule({kind, 2, 1, 3});
    change(schedule.ranks);
    return VerifySchedule(schedule).status();
  };
  using Ranks = std::vector<std::vector<StageOp>>;
  const absl::Status missing =
      broken(ScheduleKind::GPIPE, [](Ranks& ranks) { ranks[1].erase(ranks[1].begin() + 1); });
  EXPECT_EQ(missing, absl::InvalidArgumentError("rank 1 lacks F1"));
  const absl::Status no_weight =
      broken(ScheduleKind::ZB_H1, [](Ranks& ranks) { ranks[1].pop_back(); });
  EXPECT_EQ(no_weight, absl::InvalidArgumentError("rank 1 lacks W2"));
  const absl::Status twice =
      broken(ScheduleKind::GPIPE, [](Ranks& ranks) { ranks[0].push_back(ranks[0][1]); });
  EXPECT_EQ(twice, absl::InvalidArgumentError("rank 0 has the work of F1 twice"));
  const absl::Status stray = broken(ScheduleKind::GPIPE, [](Ranks& ranks) {
    ranks[0].push_back({StageWork::FORWARD, 0, 3});
  });
  EXPECT_EQ(stray, absl::InvalidArgumentError("rank 0 has F3, with 1 chunks and 3 microbatches"));
  const absl::Status early = broken(
      ScheduleKind::GPIPE, [](Ranks& ranks) { std::swap(ranks[0].front(), ranks[0].back()); });
  EXPECT_TRUE(absl::IsInvalidArgument(early) && Says(early, "rank 0 has BW")) << early;
  const absl::Status order =
      broken(ScheduleKind::GPIPE, [](Ranks& ranks) { std::swap(ranks[1][0], ranks[1][1]); });
  EXPECT_EQ(order, absl::InvalidArgumentError(
                       "rank 1 receives F1 of rank 0 before F0 of rank 0, which is sent first"));
}

TEST(VerifierTest, ACircleOfWaitingRanksIsNamed) {
  // Rank 0 wants the gradient of microbatch 0 before it sends microbatch 1, for which rank 1 waits.
  using enum StageWork;
  const PipelineSchedule schedule{
      1,
      2,
      true,
      {{{FORWARD, 0, 0}, {BACKWARD, 0, 0}, {FORWARD, 0, 1}, {BACKWARD, 0, 1}},
       {{FORWARD, 0, 0}, {FORWARD, 0, 1}, {BACKWARD, 0, 0}, {BACKWARD, 0, 1}}}};
  EXPECT_EQ(VerifySchedule(schedule).status(),
            absl::FailedPreconditionError("deadlock: rank 0 waits before BW0 for BW0 of rank 1; "
                                          "rank 1 waits before F1 for F1 of rank 0"));
}

}  // namespace
}  // namespace tandem::parallel
