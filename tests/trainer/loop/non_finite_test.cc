// Losses, gradients, weights and evaluations that are not finite, at every place of a run.
// STOP ends the run on all replicas with the last good checkpoint. SKIP leaves the step out on all
// replicas.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/trainer/loop/non_finite_run.h"

namespace tandem::loop {
namespace {

const std::vector<std::string> kSkip{"train.non_finite=SKIP"};

std::vector<std::string> With(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

TEST(NonFiniteTest, ALossThatIsNoNumberEndsTheRunOnAllReplicasNamingTheStep) {
  for (const char* text : {kGpt, kServedGpt, kRecommender}) {
    for (const int replicas : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(text, replicas));
      const FaultyResult result =
          RunWith(text, {}, {.replicas = replicas, .fault = {FaultKind::LOSS, 3, replicas - 1}});
      ExpectDiverged(result, {"step 3: loss is NaN; learning rate 0.01; ", "train.non_finite=SKIP",
                              "the checkpoint of step 2 stands"});
      EXPECT_EQ(result.losses.size(), 2u);
      EXPECT_EQ(result.checkpoints, std::vector<std::string>{"step-00000002"});
    }
  }
}

TEST(NonFiniteTest, AGradientEndsTheRunOnAllReplicasThoughTheLossIsFinite) {
  for (const char* text : {kGpt, kServedGpt, kRecommender}) {
    SCOPED_TRACE(text);
    const FaultyResult result = RunWith(text, {"placement=REPLICATED"},
                                        {.replicas = 2, .fault = {FaultKind::GRADIENT, 3, 1}});
    ExpectDiverged(result, {"step 3: the gradient of ", " is not finite; learning rate 0.01; ",
                            "the checkpoint of step 2 stands"});
    EXPECT_EQ(result.losses.size(), 2u);
    const bool served = text == kServedGpt;  // then the other replica does not know which
    EXPECT_EQ(result.ends[0].message().find("the gradient of a served parameter") !=
                  absl::string_view::npos,
              served);
    EXPECT_EQ(result.ends[1].message().find("the gradient of a served parameter"),
              absl::string_view::npos);
  }
}

TEST(NonFiniteTest, ARowGradientThatATableRejectsEndsTheRunAsTheRestOfTheModelDoes) {
  for (const int servers : {0, 2}) {
    const FaultyResult result =
        RunWith(kRecommender, {},
                {.replicas = 2, .servers = servers, .fault = {FaultKind::GRADIENT, 3, 1}});
    EXPECT_TRUE(absl::IsOutOfRange(result.ends[1])) << result.ends[1];
    EXPECT_NE(result.ends[1].message().find("table item: the gradient of id "),
              absl::string_view::npos)
        << result.ends[1];
    EXPECT_NE(result.ends[1].message().find("from trainer 1 in step 3"), absl::string_view::npos)
        << result.ends[1];
    EXPECT_TRUE(absl::IsOutOfRange(result.ends[0])) << "its peer tells it: " << result.ends[0];
    EXPECT_EQ(result.checkpoints, std::vector<std::string>{"step-00000002"});
  }
}

TEST(NonFiniteTest, ASkippedStepLeavesNothingBehindOnAnyReplicaOrServer) {
  for (const char* text : {kGpt, kServedGpt, kRecommender}) {
    for (const FaultKind kind : {FaultKind::LOSS, FaultKind::GRADIENT}) {
      for (const int replicas : {1, 2}) {
        SCOPED_TRACE(absl::StrCat(text, static_cast<int>(kind), replicas));
        const FaultyResult without =
            RunWith(text, With(kSkip, {"train.max_steps=2"}), {.replicas = replicas});
        const FaultyResult skipped =
            RunWith(text, With(kSkip, {"train.max_steps=3"}),
                    {.replicas = replicas, .fault = {kind, 3, replicas - 1}});
        ASSERT_TRUE(without.ok() && skipped.ok()) << skipped.ends[0];
        EXPECT_EQ(skipped.summary.steps, 3);
        EXPECT_EQ(skipped.summary.params_hash, without.summary.params_hash);
        EXPECT_EQ(skipped.skipped, std::vector<int64_t>{3});
        EXPECT_NE(skipped.printed.find("step 3 is skipped: "), std::string::npos)
            << skipped.printed;
        EXPECT_NE(skipped.printed.find("1 steps were skipped"), std::string::npos)
            << skipped.printed;
      }
    }
  }
}

TEST(NonFiniteTest, ARunGoesOnBehindASkippedStepInEveryConsistency) {
  for (const char* consistency : {"BSP", "SSP", "ASP", "PERMIT"}) {
    for (const char* text : {kServedGpt, kRecommender}) {
      SCOPED_TRACE(absl::StrCat(consistency, text));
      const FaultyResult result = RunWith(
          text, With(kSkip, {absl::StrCat("ps.consistency=", consistency), "train.max_steps=6"}),
          {.replicas = 2, .servers = 2, .fault = {FaultKind::LOSS, 3, 1}});
      ASSERT_TRUE(result.ok()) << result.ends[0] << result.ends[1];
      EXPECT_EQ(result.skipped, std::vector<int64_t>{3});
      ASSERT_EQ(result.losses.size(), 6u);
      for (const size_t step : {1, 2, 4, 5, 6})
        EXPECT_TRUE(std::isfinite(result.losses[step - 1])) << step;
      EXPECT_EQ(result.evaluations.find("null"), std::string::npos)
          << "the mean loss is of the other steps: " << result.evaluations;
    }
  }
}

TEST(NonFiniteTest, StepsAndTheScheduleGoOnOverASkippedStep) {
  const std::vector<std::string> sets = With(kSkip, {"optimizer.schedule=LINEAR"});
  const FaultyResult result = RunWith(kGpt, sets, {.fault = {FaultKind::LOSS, 2}}),
                     whole = RunWith(kGpt, sets, {});
  ASSERT_TRUE(result.ok()) << result.ends[0];
  EXPECT_EQ(result.summary.steps, 4);
  EXPECT_EQ(result.learning_rates, whole.learning_rates);
  EXPECT_NE(result.summary.params_hash, whole.summary.params_hash);
}

TEST(NonFiniteTest, WeightsThatOverflowEndTheRunUnderBothPoliciesBeforeTheyAreEvaluated) {
  for (const char* text : {kGpt, kServedGpt, kRecommender}) {
    for (const char* policy : {"train.non_finite=STOP", "train.non_finite=SKIP"}) {
      SCOPED_TRACE(absl::StrCat(text, policy));
      const FaultyResult result = RunWith(
          text, {policy, "optimizer.kind=SGD", "optimizer.learning_rate=1e20", "train.max_steps=1"},
          {.replicas = 2, .fault = {FaultKind::LARGE_GRADIENT, 1, 1}});
      ExpectDiverged(result, {"step 1: parameter ", " is not finite; learning rate 1e+20; ",
                              "no checkpoint was written before"});
      EXPECT_EQ(result.checkpoints, std::vector<std::string>{});
    }
  }
}

TEST(NonFiniteTest, OptimizerStateThatOverflowsIsNeverWrittenAndTheLastCheckpointStands) {
  for (const char* text : {kGpt, kServedGpt, kRecommender}) {
    SCOPED_TRACE(text);
    const std::vector<std::string> sets{"checkpoint.every_steps=1", "checkpoint.keep=9",
                                        "train.max_steps=9", "train.eval_every_steps=9"};
    const FaultyResult result =
        RunWith(text, sets, {.replicas = 2, .fault = {FaultKind::LARGE_GRADIENT, 2, 1}});
    ExpectDiverged(result, {"step 2: checkpoint of step 2 in ", "#v is not finite",
                            "the checkpoint of step 1 stands"});
    EXPECT_EQ(result.checkpoints, std::vector<std::string>{"step-00000001"});
  }
}

TEST(NonFiniteTest, OptimizerStateThatOverflowsIsNotEvaluatedEither) {
  const FaultyResult result = RunWith(kGpt, {"train.max_steps=2"},
                                      {.replicas = 2, .fault = {FaultKind::LARGE_GRADIENT, 2, 1}});
  ExpectDiverged(result, {"step 2: parameter ", "#v is not finite"});
  EXPECT_EQ(result.evaluations, "");
}

TEST(NonFiniteTest, AnEvaluationThatIsNotFiniteEndsTheRunWithStop) {
  for (const auto& [text, kind, word] :
       {std::tuple(kGpt, FaultKind::VALID, "step 4: evaluation: valid/faulty is NaN"),
        std::tuple(kRecommender, FaultKind::VALID, "step 4: evaluation: valid/faulty is NaN")}) {
    const FaultyResult result = RunWith(text, {}, {.replicas = 2, .fault = {kind, 2}});
    ExpectDiverged(result, {word, "the checkpoint of step 2 stands"});
    EXPECT_EQ(result.checkpoints, std::vector<std::string>{"step-00000002"});
  }
  const FaultyResult tested =
      RunWith(kRecommender, {}, {.replicas = 2, .fault = {FaultKind::TEST, 1}});
  ExpectDiverged(
      tested, {"step 2: evaluation: test/faulty is infinite", "no checkpoint was written before"});
  EXPECT_EQ(tested.checkpoints, std::vector<std::string>{});
}

TEST(NonFiniteTest, AnEvaluationThatIsNotFiniteIsNeverTheBestWithSkip) {
  for (const FaultKind kind : {FaultKind::VALID, FaultKind::TEST}) {
    const FaultyResult result = RunWith(kRecommender, kSkip, {.replicas = 2, .fault = {kind, 1}});
    ASSERT_TRUE(result.ok()) << result.ends[0];
    EXPECT_EQ(result.summary.best_step, 4);
    EXPECT_TRUE(result.summary.metrics.count("test/hr@10"));
    EXPECT_FALSE(result.summary.metrics.count("test/faulty"));
    EXPECT_EQ(result.checkpoints, std::vector<std::string>{"step-00000004"});
  }
  for (const FaultKind kind : {FaultKind::VALID, FaultKind::TEST}) {
    const FaultyResult only =
        RunWith(kRecommender, With(kSkip, {"train.max_steps=2"}), {.fault = {kind, 1}});
    ASSERT_TRUE(only.ok()) << only.ends[0];
    EXPECT_EQ(only.summary.best_step, 0);
    EXPECT_TRUE(only.summary.metrics.empty());
    EXPECT_EQ(only.checkpoints, std::vector<std::string>{});
  }
}

TEST(NonFiniteTest, ScoresThatAreNotNumbersAreNoRanks) {
  const FaultyResult result =
      RunWith(kRecommender, {}, {.replicas = 2, .poisoned_evaluations = true});
  ExpectDiverged(result, {"step 2: evaluation: valid/mrr is NaN"});
  const FaultyResult skips =
      RunWith(kRecommender, kSkip, {.replicas = 2, .poisoned_evaluations = true});
  ASSERT_TRUE(skips.ok()) << skips.ends[0];
  EXPECT_EQ(skips.summary.best_step, 0);
}

TEST(NonFiniteTest, FiniteRunsHaveTheSameBitsUnderBothPolicies) {
  for (const char* text : {kGpt, kServedGpt, kRecommender}) {
    const FaultyResult stops = RunWith(text, {}, {.replicas = 2}),
                       skips = RunWith(text, kSkip, {.replicas = 2});
    ASSERT_TRUE(stops.ok() && skips.ok()) << stops.ends[0] << skips.ends[0];
    EXPECT_EQ(stops.losses, skips.losses);
    EXPECT_EQ(stops.summary.params_hash, skips.summary.params_hash);
    EXPECT_EQ(stops.summary.metrics, skips.summary.metrics);
  }
}

}  // namespace
}  // namespace tandem::loop
