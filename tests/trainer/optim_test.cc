#include <gtest/gtest.h>

#include <cmath>

#include "tests/trainer/gradient_check.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/optim/schedule.h"

namespace tandem {
namespace {

using ::tandem::testing::StepFixture;

TEST(ScheduleTest, WarmsUpThenStaysOrDecays) {
  optim::Schedule schedule{.kind = optim::ScheduleKind::CONSTANT, .learning_rate = 1, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(schedule.At(1), 0.2);
  EXPECT_DOUBLE_EQ(schedule.At(4), 0.8);
  EXPECT_DOUBLE_EQ(schedule.At(5), 1);
  EXPECT_DOUBLE_EQ(schedule.At(5000), 1);
  schedule.kind = optim::ScheduleKind::LINEAR;
  schedule.total_steps = 14;
  schedule.min_learning_rate = 0.5;
  EXPECT_DOUBLE_EQ(schedule.At(5), 1);
  EXPECT_DOUBLE_EQ(schedule.At(10), 0.75);
  EXPECT_DOUBLE_EQ(schedule.At(15), 0.5);
  EXPECT_DOUBLE_EQ(schedule.At(99), 0.5);
  schedule.kind = optim::ScheduleKind::COSINE;
  EXPECT_DOUBLE_EQ(schedule.At(10), 0.75);
  EXPECT_GT(schedule.At(7), 0.75 + 0.15);
}

// nanoGPT's words, whose steps count from 0: lr (i + 1) / 101 for i < 100, then half a cosine that is min_lr at i = 2000.
TEST(ScheduleTest, WarmUpAndCosineAreNanoGpts) {
  const optim::Schedule schedule{.kind = optim::ScheduleKind::COSINE,
                                 .learning_rate = 1e-3,
                                 .min_learning_rate = 1e-4,
                                 .warmup_steps = 100,
                                 .total_steps = 2000};
  for (int i = 0; i <= 2100; ++i) {
    const double cosine = 0.5 * (1 + std::cos(std::acos(-1.0) * (i - 100) / 1900));
    const double expected = i < 100 ? 1e-3 * (i + 1) / 101 : i < 2000 ? 1e-4 + cosine * 9e-4 : 1e-4;
    ASSERT_NEAR(schedule.At(i + 1), expected, 1e-17) << i;
  }
}

// Gives every parameter the gradient `value`.
void SetGradients(ParameterSet& parameters, double value) {
  StepFixture fixture;
  Context context(fixture.Options());
  parameters.ClearGradients();
  for (const auto& parameter : parameters.all()) {
    Tensor gradient = Tensor::Empty(parameter->shape, parameters.dtype());
    for (int64_t i = 0; i < gradient.num_elements(); ++i) gradient.Set(i, value);
    Backward(context, {{parameter->variable, gradient}});
  }
}

TEST(DenseOptimizerTest, AdamsFirstStepMovesByTheLearningRate) {
  ParameterSet parameters(1, DType::F64);
  const Variable w = parameters.Constant("w", Shape{3}, 2);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAM}, &parameters);
  SetGradients(parameters, 40);
  adam.Update(1, 0.25, 0.1);
  EXPECT_NEAR(w.value().At(1), 1.75, 1e-7);
}

TEST(DenseOptimizerTest, DecayTouchesMatricesOnly) {
  ParameterSet parameters(1, DType::F64);
  const Variable matrix = parameters.Normal("matrix", Shape{1, 1}, 1);
  const Variable bias = parameters.Constant("bias", Shape{1}, 1);
  const double before = matrix.value().At(0);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAMW, .weight_decay = 0.1}, &parameters);
  SetGradients(parameters, 0);
  adam.Update(1, 0.5, 1);
  EXPECT_NEAR(matrix.value().At(0), before * 0.95, 1e-12);
  EXPECT_EQ(bias.value().At(0), 1);
}

TEST(DenseOptimizerTest, HashCoversWeightsAndSlots) {
  ParameterSet parameters(1, DType::F32);
  parameters.Normal("w", Shape{2, 2}, 1);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAM}, &parameters);
  const absl::uint128 before = adam.Hash();
  adam.slots(0)[1].Set(3, 1);
  const absl::uint128 slot_changed = adam.Hash();
  EXPECT_NE(before, slot_changed);
  adam.slots(0)[1].Set(3, 0);
  EXPECT_EQ(before, adam.Hash());
  parameters.all()[0]->variable.value().Set(0, 9);
  EXPECT_NE(before, adam.Hash());
}

TEST(DenseOptimizerTest, SquaredNormSumsOverAllParameters) {
  ParameterSet parameters(1, DType::F32);
  parameters.Constant("a", Shape{3}, 0);
  parameters.Constant("b", Shape{2}, 0);
  optim::DenseOptimizer sgd({.kind = optim::Kind::SGD}, &parameters);
  SetGradients(parameters, 2);
  StepFixture fixture;
  EXPECT_DOUBLE_EQ(sgd.GradientSquaredNorm(fixture.stream()), 20);
}

}  // namespace
}  // namespace tandem
