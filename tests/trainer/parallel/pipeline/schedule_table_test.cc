// The drawing of a schedule.
#include "trainer/parallel/pipeline/schedule_table.h"

#include <gtest/gtest.h>

namespace tandem::parallel {
namespace {

std::string Draw(const ScheduleOptions& options, const StageCosts& costs, size_t columns) {
  const PipelineSchedule schedule = MakeSchedule(options);
  const auto report = VerifySchedule(schedule, costs);
  EXPECT_TRUE(report.ok()) << report.status();
  return ScheduleTable(schedule, *report, costs, columns);
}

TEST(ScheduleTableTest, RanksHaveALineAndIdleSlotsADot) {
  EXPECT_EQ(Draw({ScheduleKind::ONE_F_ONE_B, 2, 1, 2}, {}, 80),
            "slot   0  1  2  3  4  5  6  7  8\n"
            "rank 0 F0 F1 .  .  B0 W0 .  B1 W1\n"
            "rank 1 .  F0 B0 W0 F1 B1 W1 .  .\n");
}

TEST(ScheduleTableTest, WorkOfSeveralSlotsIsNamedOnceAndWideTablesGoOnBelow) {
  EXPECT_EQ(Draw({ScheduleKind::ZB_H1, 2, 1, 1}, {2, 1, 1}, 22),
            "slot   0  1  2  3  4\n"
            "rank 0 F0 -  .  .  .\n"
            "rank 1 .  .  F0 -  B0\n"
            "\n"
            "slot   5  6\n"
            "rank 0 B0 W0\n"
            "rank 1 W0 .\n");
}

TEST(ScheduleTableTest, ChunksAreNamedAndTakePartOfTheTime) {
  EXPECT_EQ(Draw({ScheduleKind::INTERLEAVED, 2, 2, 1}, {}, 80),
            "slot   0    1    2    3    4    5    6    7    8    9    10   11\n"
            "rank 0 F0.0 .    F0.1 .    .    .    B0.1 W0.1 .    .    B0.0 W0.0\n"
            "rank 1 .    F0.0 .    F0.1 B0.1 W0.1 .    .    B0.0 W0.0 .    .\n");
}

}  // namespace
}  // namespace tandem::parallel
