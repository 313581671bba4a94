#include "kernels/optimizer.h"

#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

TEST(SgdTest, FollowsItsFormula) {
  double w[2] = {1, -2};
  const double g[2] = {0.5, 4};
  SgdUpdate(w, g, 2, {0.1, 0, 0.5});
  EXPECT_DOUBLE_EQ(w[0], 1 - 0.1 * 0.25);
  EXPECT_DOUBLE_EQ(w[1], -2 - 0.1 * 2);
  SgdUpdate(w, g, 1, {0.1, 0.01, 1});
  EXPECT_DOUBLE_EQ(w[0], 0.975 * (1 - 0.001) - 0.05);
}

TEST(AdagradTest, FirstStepMovesByTheLearningRate) {
  double w[1] = {1}, a[1] = {0};
  const double g[1] = {-8};
  AdagradUpdate(w, a, g, 1, {0.1, 1e-10, 0.25});
  EXPECT_DOUBLE_EQ(a[0], 4);
  EXPECT_NEAR(w[0], 1.1, 1e-9);
}

TEST(AdamTest, FollowsThePaperOverManySteps) {
  double w[1] = {1}, m[1] = {0}, v[1] = {0}, want = 1, first = 0, second = 0;
  float w32[1] = {1}, m32[1] = {0}, v32[1] = {0};
  for (uint64_t step = 1; step <= 200; ++step) {
    const double g = std::sin(static_cast<double>(step));
    const float g32 = static_cast<float>(g);
    AdamArgs args;
    args.learning_rate = 0.01, args.weight_decay = 0.1, args.gradient_scale = 2, args.step = step;
    AdamUpdate(w, m, v, &g, 1, args);
    AdamUpdate(w32, m32, v32, &g32, 1, args);
    const double t = static_cast<double>(step), scaled = 2 * g;
    first = 0.9 * first + 0.1 * scaled;
    second = 0.999 * second + 0.001 * scaled * scaled;
    want = want * (1 - 0.01 * 0.1) - 0.01 * (first / (1 - std::pow(0.9, t))) /
                                         (std::sqrt(second / (1 - std::pow(0.999, t))) + 1e-8);
    ASSERT_NEAR(w[0], want, 1e-12) << step;
    ASSERT_NEAR(w32[0], want, 1e-5) << step;
  }
}

TEST(AmsgradTest, RatesNeverGrowAgain) {
  double w[1] = {1}, m[1] = {0}, v[1] = {0}, v_max[1] = {0}, want = 1, first = 0, second = 0,
         largest = 0;
  for (uint64_t step = 1; step <= 50; ++step) {
    const double g = step == 2 ? 10 : 0.1;
    AdamArgs args;
    args.learning_rate = 0.01, args.beta2 = 0.9, args.gradient_scale = 2, args.step = step;
    AmsgradUpdate(w, m, v, v_max, &g, 1, args);
    const double t = static_cast<double>(step);
    first = 0.9 * first + 0.1 * 2 * g;
    second = 0.9 * second + 0.1 * 4 * g * g;
    largest = std::max(largest, second);
    want -= 0.01 * (first / (1 - std::pow(0.9, t))) /
            (std::sqrt(largest / (1 - std::pow(0.9, t))) + 1e-8);
    ASSERT_NEAR(w[0], want, 1e-12) << step;
  }
  EXPECT_GT(v_max[0], 10 * v[0]);
}

TEST(MomentumTest, HeavyBallAndNesterov) {
  double heavy[1] = {1}, nesterov[1] = {1}, m[2] = {0, 0};
  const double g[1] = {2};
  MomentumUpdate(heavy, m, g, 1, {0.1, 0.5, 2, false});
  EXPECT_DOUBLE_EQ(heavy[0], 1 - 0.1 * 4);
  MomentumUpdate(heavy, m, g, 1, {0.1, 0.5, 2, false});
  EXPECT_DOUBLE_EQ(heavy[0], 1 - 0.1 * 4 - 0.1 * 6);
  MomentumUpdate(nesterov, m + 1, g, 1, {0.1, 0.5, 2, true});
  EXPECT_DOUBLE_EQ(nesterov[0], 1 - 0.1 * (4 + 0.5 * 4));
}

TEST(RmspropTest, DividesByTheRootOfTheRunningMean) {
  double w[1] = {1}, a[1] = {4};
  const double g[1] = {3};
  RmspropUpdate(w, a, g, 1, {0.1, 0.75, 0.5, 2});
  EXPECT_DOUBLE_EQ(a[0], 0.75 * 4 + 0.25 * 36);
  EXPECT_DOUBLE_EQ(w[0], 1 - 0.1 * 6 / (std::sqrt(12.0) + 0.5));
}

TEST(AdadeltaTest, StepsHaveTheUnitOfEarlierChanges) {
  double w[1] = {1}, a[1] = {0}, d[1] = {0};
  const double g[1] = {8};
  AdadeltaUpdate(w, a, d, g, 1, {1, 0.75, 0.25, 0.5});
  const double change = 4 * std::sqrt(0.25) / std::sqrt(4.25);
  EXPECT_DOUBLE_EQ(w[0], 1 - change);
  EXPECT_DOUBLE_EQ(d[0], 0.25 * change * change);
}

// A row on a parameter server equals the same values inside a dense parameter because of this.
TEST(AdamTest, BitsDoNotDependOnLengthOrPlace) {
  const int64_t n = 1000;
  const Array<float> start = RandomArray<float>({n}, 1), g = RandomArray<float>({n}, 2);
  Array<float> w = start, m({n}), v = RandomArray<float>({n}, 3, 0);
  AdamArgs args;
  args.learning_rate = 1e-3, args.weight_decay = 0.01, args.step = 7;
  AdamUpdate(w.values.data(), m.values.data(), v.values.data(), g.values.data(), n, args);
  for (int64_t run : {1, 3, 17, 64, 65}) {
    Array<float> w2 = start, m2({n}), v2({n});
    for (int64_t i = 0; i < n; i += run) {
      AdamUpdate(&w2[i], &m2[i], &v2[i], &g[i], std::min(run, n - i), args);
    }
    ExpectSameBits(w, w2);
    ExpectSameBits(m, m2);
    ExpectSameBits(v, v2);
  }
}

TEST(AdagradTest, BitsDoNotDependOnLengthOrPlace) {
  const int64_t n = 500;
  const Array<float> start = RandomArray<float>({n}, 1), g = RandomArray<float>({n}, 2);
  Array<float> w = start, a({n}), w2 = start, a2({n});
  AdagradUpdate(w.values.data(), a.values.data(), g.values.data(), n, {0.1, 1e-10, 0.5});
  for (int64_t i = 0; i < n; ++i) AdagradUpdate(&w2[i], &a2[i], &g[i], 1, {0.1, 1e-10, 0.5});
  ExpectSameBits(w, w2);
  ExpectSameBits(a, a2);
}

TEST(AdamTest, StepZeroDies) {
  double w[1] = {1}, m[1] = {0}, v[1] = {0};
  const double g[1] = {1};
  EXPECT_DEATH(AdamUpdate(w, m, v, g, 1, {.step = 0}), "step");
}

TEST(OptimizerTest, EmptyRunIsAllowed) {
  AdamUpdate<float>(nullptr, nullptr, nullptr, nullptr, 0, {});
  AdagradUpdate<float>(nullptr, nullptr, nullptr, 0, {});
  SgdUpdate<float>(nullptr, nullptr, 0, {});
}

}  // namespace
}  // namespace tandem::kernels
