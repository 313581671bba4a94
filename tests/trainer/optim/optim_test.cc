#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/optim/dense_optimizer.h"
#include "trainer/optim/schedule.h"

namespace tandem {
namespace {

using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

TEST(ScheduleTest, WarmsUpThenStaysOrDecays) {
  optim::Schedule schedule{
      .kind = optim::ScheduleKind::CONSTANT, .learning_rate = 1, .warmup_steps = 4};
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

// nanoGPT counts steps from 0: lr (i + 1) / 101 for i < 100, then half a cosine that is min_lr at i
// = 2000.
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
    Tensor gradient = Tensor::Empty(parameter->shape(), parameters.dtype());
    for (int64_t i = 0; i < gradient.num_elements(); ++i) gradient.Set(i, value);
    Backward(context, {{parameter->variable, gradient}});
  }
}

TEST(DenseOptimizerTest, AdamsFirstStepMovesByTheLearningRate) {
  ParameterSet parameters(1, DType::F64);
  const Variable w = parameters.Constant("w", Shape{3}, 2);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAM}, &parameters);
  SetGradients(parameters, 40);
  adam.Update(1, 0.25, 0.1, StepFixture().stream());
  EXPECT_NEAR(w.value().At(1), 1.75, 1e-7);
}

TEST(DenseOptimizerTest, DecayTouchesMatricesOnly) {
  ParameterSet parameters(1, DType::F64);
  const Variable matrix = parameters.Normal("matrix", Shape{1, 1}, 1);
  const Variable bias = parameters.Constant("bias", Shape{1}, 1);
  const double before = matrix.value().At(0);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAMW, .weight_decay = 0.1}, &parameters);
  SetGradients(parameters, 0);
  adam.Update(1, 0.5, 1, StepFixture().stream());
  EXPECT_NEAR(matrix.value().At(0), before * 0.95, 1e-12);
  EXPECT_EQ(bias.value().At(0), 1);
}

TEST(DenseOptimizerTest, DecayAllTouchesBiasesToo) {
  ParameterSet parameters(1, DType::F64);
  const Variable bias = parameters.Constant("bias", Shape{1}, 1);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAMW, .weight_decay = 0.1, .decay_all = true},
                             &parameters);
  SetGradients(parameters, 0);
  adam.Update(1, 0.5, 1, StepFixture().stream());
  EXPECT_NEAR(bias.value().At(0), 0.95, 1e-12);
}

// Parameters smaller than one run, of one run and of several. One parameter has no gradient.
class CutParameters {
 public:
  explicit CutParameters(optim::Kind kind, int threads, bool shadows)
      : set_(5, DType::F32), fixture_(threads) {
    for (int64_t n : {3, 16384, 40001, 7}) set_.Normal(absl::StrCat("w", n), Shape{1, n}, 1);
    for (const auto& parameter : set_.all()) {
      if (shadows)
        parameter->variable.leaf().set_shadow(Tensor::Zeros(parameter->shape(), DType::BF16));
    }
    optim::DenseOptimizer optimizer({.kind = kind, .weight_decay = 0.1}, &set_);
    for (uint64_t step = 1; step <= 2; ++step) {
      Context context(fixture_.Options(step));
      set_.ClearGradients();
      for (size_t p = 0; p + 1 < set_.all().size(); ++p) {
        const Parameter& parameter = *set_.all()[p];
        const Tensor gradient = RandomTensor(parameter.shape(), 10 * step + p, DType::F32);
        Backward(context, {{parameter.variable, gradient}});
      }
      norm_ = optimizer.GradientSquaredNorm(fixture_.stream());
      optimizer.Update(step, 0.1, 0.5, fixture_.stream());
    }
    hash_ = optimizer.State().Hash();
  }

  const ParameterSet& set() const { return set_; }
  Stream& stream() { return fixture_.stream(); }
  double norm() const { return norm_; }
  absl::uint128 hash() const { return hash_; }

 private:
  ParameterSet set_;
  StepFixture fixture_;
  double norm_ = 0;
  absl::uint128 hash_;
};

TEST(DenseOptimizerTest, BitsDependNeitherOnThreadsNorOnShadows) {
  for (auto kind :
       {optim::Kind::SGD, optim::Kind::ADAGRAD, optim::Kind::ADAM, optim::Kind::ADAMW}) {
    const CutParameters one(kind, 1, false), three(kind, 3, true);
    EXPECT_EQ(one.hash(), three.hash());
    EXPECT_EQ(one.norm(), three.norm());
    for (size_t p = 0; p < three.set().all().size(); ++p) {
      const Parameter& parameter = *three.set().all()[p];
      const bool updated = p + 1 < three.set().all().size();
      const float* value = parameter.variable.value().data<float>();
      const BFloat16* shadow = parameter.variable.leaf().shadow().data<BFloat16>();
      for (int64_t i = 0; i < parameter.shape().num_elements(); ++i) {
        ASSERT_EQ(shadow[i].bits, updated ? ToBFloat16(value[i]).bits : 0)
            << parameter.name << " element " << i;
      }
    }
  }
}

TEST(DenseOptimizerTest, CuttingAParameterChangesNoBitOfItsUpdateAndNorm) {
  CutParameters cut(optim::Kind::ADAM, 2, false);
  const Parameter& parameter = *cut.set().all()[2];
  const int64_t n = parameter.shape().num_elements();
  ParameterSet fresh(5, DType::F32);
  const Tensor weight = fresh.Normal(parameter.name, parameter.shape(), 1).value();
  const Tensor m = Tensor::Zeros(parameter.shape(), DType::F32),
               v = Tensor::Zeros(parameter.shape(), DType::F32);
  for (uint64_t step = 1; step <= 2; ++step) {
    const Tensor gradient = RandomTensor(parameter.shape(), 10 * step + 2, DType::F32);
    kernels::AdamUpdate(weight.data<float>(), m.data<float>(), v.data<float>(),
                        gradient.data<float>(), n,
                        {.learning_rate = 0.1, .gradient_scale = 0.5, .step = step});
  }
  EXPECT_EQ(std::memcmp(weight.raw(), parameter.variable.value().raw(), weight.num_bytes()), 0);
  double sum = 0;
  for (const auto& each : cut.set().all()) {
    if (each->variable.leaf().has_gradient()) {
      sum += kernels::SumOfSquares(each->variable.leaf().gradient().view(), cut.stream());
    }
  }
  EXPECT_EQ(cut.norm(), sum);
}

TEST(DenseOptimizerTest, HashCoversWeightsAndSlots) {
  ParameterSet parameters(1, DType::F32);
  parameters.Normal("w", Shape{2, 2}, 1);
  optim::DenseOptimizer adam({.kind = optim::Kind::ADAM}, &parameters);
  const absl::uint128 before = adam.State().Hash();
  adam.slots(0)[1].Set(3, 1);
  const absl::uint128 slot_changed = adam.State().Hash();
  EXPECT_NE(before, slot_changed);
  adam.slots(0)[1].Set(3, 0);
  EXPECT_EQ(before, adam.State().Hash());
  parameters.all()[0]->variable.value().Set(0, 9);
  EXPECT_NE(before, adam.State().Hash());
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
