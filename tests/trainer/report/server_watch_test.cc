// Statistics of servers, as figures and as notes.
#include "trainer/report/server_watch.h"

#include <gtest/gtest.h>

namespace tandem::report {
namespace {

TEST(ServerWatchTest, TheMostStepsOfWhatWasCountedMeanwhile) {
  const auto histogram = [](const std::vector<uint64_t>& counts, uint64_t max) {
    StepHistogram made;
    made.mutable_counts()->Assign(counts.begin(), counts.end());
    made.set_max(max);
    return made;
  };
  EXPECT_EQ(MostSteps({}, {}), 0);
  EXPECT_EQ(MostSteps({}, histogram({3, 2, 0, 0}, 1)), 1);
  EXPECT_EQ(MostSteps(histogram({3, 2, 0, 0}, 1), histogram({5, 2, 0, 0}, 1)), 0);
  EXPECT_EQ(MostSteps(histogram({3, 2, 1, 0}, 2), histogram({5, 3, 1, 0}, 2)), 1);
  EXPECT_EQ(MostSteps(histogram({3, 2, 1, 0}, 2), histogram({5, 3, 1, 1}, 40)), 40)
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
  EXPECT_EQ(ServerNotes(statistics, false), std::vector<std::string>{guarded});
  EXPECT_EQ(ServerNotes(statistics, true),
            (std::vector<std::string>{"staleness: pulls missed up to 40 steps of the slowest "
                                      "trainer (pulls by steps missed: 2: 5 16+: 1); "
                                      "up to 3 steps of a trainer under way",
                                      guarded}));
}

}  // namespace
}  // namespace tandem::report
