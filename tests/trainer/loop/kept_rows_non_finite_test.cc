// Row gradients and rows that are not finite, if a trainer keeps rows.
// Covers copies that it trains (GEO), a cache that may lag behind, and gradients that it keeps back
// (ROW_BOUND).
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/trainer/loop/non_finite_run.h"
#include "trainer/cli/client_of_job.h"

namespace tandem::loop {
namespace {

using Sets = std::vector<std::string>;

// Windows and bounds that end with an evaluation, that end before one, and that outlast the run.
const Sets kKeepers[] = {
    {"ps.consistency=GEO", "ps.geo_steps=1"},
    {"ps.consistency=GEO", "ps.geo_steps=2"},
    {"ps.consistency=GEO", "ps.geo_steps=9"},
    {"ps.consistency=ROW_BOUND", "ps.read_bound=2"},
    {"ps.consistency=ROW_BOUND", "ps.write_bound=1"},
    {"ps.consistency=ROW_BOUND", "ps.read_bound=2", "ps.write_bound=9"},
};

Sets With(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

FaultyResult RunKept(const Sets& sets, FaultyRun run) {
  run.client_of_job = cli::ClientOfJob;
  return RunWith(kRecommender, sets, run);
}

TEST(KeptRowsNonFiniteTest, ARowGradientThatATableRejectsEndsTheRunNamingWhoHadIt) {
  for (const Sets& keeper : kKeepers) {
    for (const int servers : {0, 2}) {
      SCOPED_TRACE(absl::StrCat(absl::StrJoin(keeper, " "), " ", servers));
      const FaultyResult result = RunKept(
          keeper, {.replicas = 2, .servers = servers, .fault = {FaultKind::GRADIENT, 3, 1}});
      ExpectDiverged(result, {});
      for (const char* words : {"table item: the gradient of id ", "from trainer 1 in step 3"}) {
        EXPECT_NE(result.ends[1].message().find(words), absl::string_view::npos) << result.ends[1];
      }
      EXPECT_EQ(result.losses.size(), 2u);
      EXPECT_EQ(result.checkpoints, Sets{"step-00000002"});
    }
  }
}

TEST(KeptRowsNonFiniteTest, ALossThatIsNoNumberEndsTheRun) {
  for (const Sets& keeper : kKeepers) {
    SCOPED_TRACE(absl::StrJoin(keeper, " "));
    const FaultyResult result =
        RunKept(keeper, {.replicas = 2, .servers = 2, .fault = {FaultKind::LOSS, 3, 1}});
    ExpectDiverged(result, {"step 3: loss is NaN", "the checkpoint of step 2 stands"});
    EXPECT_EQ(result.checkpoints, Sets{"step-00000002"});
  }
}

// Uses one replica, because commits of several replicas are applied in order of arrival.
TEST(KeptRowsNonFiniteTest, ASkippedStepLeavesNothingBehind) {
  for (const Sets& keeper : kKeepers) {
    for (const FaultKind kind : {FaultKind::LOSS, FaultKind::GRADIENT}) {
      SCOPED_TRACE(absl::StrCat(absl::StrJoin(keeper, " "), " ", static_cast<int>(kind)));
      // Gradients that are kept back count in the step that pushes them. SGD treats all steps
      // alike.
      const Sets sets = With(keeper, {"train.non_finite=SKIP", "train.eval_every_steps=9",
                                      "tables[item].optimizer=SGD"});
      const FaultyResult without = RunKept(With(sets, {"train.max_steps=2"}), {.servers = 2});
      const FaultyResult skipped =
          RunKept(With(sets, {"train.max_steps=3"}), {.servers = 2, .fault = {kind, 3}});
      ASSERT_TRUE(without.ok() && skipped.ok()) << without.ends[0] << skipped.ends[0];
      EXPECT_EQ(skipped.skipped, std::vector<int64_t>{3});
      EXPECT_EQ(skipped.summary.params_hash, without.summary.params_hash);
    }
  }
}

TEST(KeptRowsNonFiniteTest, ARunGoesOnBehindASkippedStep) {
  for (const Sets& keeper : kKeepers) {
    for (const FaultKind kind : {FaultKind::LOSS, FaultKind::GRADIENT}) {
      SCOPED_TRACE(absl::StrCat(absl::StrJoin(keeper, " "), " ", static_cast<int>(kind)));
      const FaultyResult result =
          RunKept(With(keeper, {"train.non_finite=SKIP", "train.max_steps=6"}),
                  {.replicas = 2, .servers = 2, .fault = {kind, 3, 1}});
      ASSERT_TRUE(result.ok()) << result.ends[0] << result.ends[1];
      EXPECT_EQ(result.skipped, std::vector<int64_t>{3});
      ASSERT_EQ(result.losses.size(), 6u);
      for (const size_t step : {1, 2, 4, 5, 6})
        EXPECT_TRUE(std::isfinite(result.losses[step - 1])) << step;
      EXPECT_EQ(result.evaluations.find("null"), std::string::npos) << result.evaluations;
    }
  }
}

// Only rows overflow: dense parameters hardly move.
TEST(KeptRowsNonFiniteTest,
     CopiesThatOverflowEndTheRunUnderBothPoliciesWhenServersGetTheirChanges) {
  for (const char* geo_steps : {"ps.geo_steps=1", "ps.geo_steps=2", "ps.geo_steps=9"}) {
    for (const char* policy : {"train.non_finite=STOP", "train.non_finite=SKIP"}) {
      SCOPED_TRACE(absl::StrCat(geo_steps, " ", policy));
      const Sets sets{"ps.consistency=GEO",
                      geo_steps,
                      policy,
                      "optimizer.kind=SGD",
                      "optimizer.learning_rate=1e-35",
                      "tables[item].learning_rate=1e20",
                      "train.max_steps=3",
                      "train.eval_every_steps=9"};
      const FaultyResult result =
          RunKept(sets, {.replicas = 2, .servers = 2, .fault = {FaultKind::LARGE_GRADIENT, 1, 1}});
      ExpectDiverged(result, {});
      const bool shows_before = sets[1] != "ps.geo_steps=1" && sets[2] == "train.non_finite=STOP";
      const char* words = shows_before ? "step 2: loss is NaN" : "table item: the change of id ";
      EXPECT_NE(result.ends[1].message().find(words), absl::string_view::npos) << result.ends[1];
      EXPECT_EQ(result.checkpoints, Sets{});
    }
  }
}

}  // namespace
}  // namespace tandem::loop
