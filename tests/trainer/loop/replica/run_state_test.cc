// A run's memory of its steps and evaluations, which a checkpoint keeps.
#include "trainer/loop/replica/run_state.h"

#include <cmath>
#include <gtest/gtest.h>

namespace tandem::loop {
namespace {

TEST(RunStateTest, GoesOnWhereItWasSaved) {
  class tandem::Train train;
  train.set_patience(3);
  train.set_min_epochs(1);
  const std::map<std::string, double> metrics{{"valid/mrr", 0.25}, {"valid/hr@10", 0.5}};
  RunState state(train);
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
  RunState restored(train);
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
  RunState state(train);
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
  RunState state(train);
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    EXPECT_FALSE(state.patience_ended());
    state.Count(epoch, 10, 100, 4.0);
    EXPECT_FALSE(state.Evaluated(epoch, std::nan(""), {}));
  }
  EXPECT_TRUE(state.patience_ended());
}

TEST(RunStateTest, SkippedStepsAreNotInTheMeanLossAndOweAnEvaluationAllTheSame) {
  const class tandem::Train train;
  RunState state(train);
  state.Count(1, 10, 100, std::nan(""), /*skipped=*/true);
  EXPECT_TRUE(state.has_steps_since_mean());
  EXPECT_TRUE(std::isnan(state.MeanLoss()));
  state.Count(2, 10, 100, 3.0);
  CheckpointManifest manifest;
  state.Save(&manifest);
  RunState restored(train);
  restored.Restore(manifest);
  restored.Count(3, 10, 100, 2.0);
  EXPECT_EQ(restored.step(), 3);
  EXPECT_EQ(restored.MeanLoss(), 2.5);
  restored.BeginMean();
  restored.Count(4, 10, 100, 7.0);
  EXPECT_EQ(restored.MeanLoss(), 7.0);
}

}  // namespace
}  // namespace tandem::loop
