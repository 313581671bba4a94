// One suite over every sparse optimizer: its slots, its one-step closed form, and what no optimizer may do.
#include "ps/optimizer/sparse_optimizer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tests/ps/spec.h"

namespace tandem::ps {
namespace {

struct Kind {
  const char* name;
  tandem::SparseOptimizer value;
  int num_slots;  // of dim numbers; -1: one number
  float initial_slot;
  // The weight after one step from `w`, with scaled gradient g, the mean of its row's squares and learning rate lr.
  double (*first_step)(double w, double g, double mean_square, double lr);
};

const Kind kKinds[] = {
    {"Sgd", SPARSE_SGD, 0, 0, [](double w, double g, double, double lr) { return w - lr * g; }},
    {"Adagrad", SPARSE_ADAGRAD, 1, 0.1f,
     [](double w, double g, double, double lr) { return w - lr * g / (std::sqrt(0.1 + g * g) + 1e-8); }},
    {"RowwiseAdagrad", SPARSE_ROWWISE_ADAGRAD, -1, 0.1f,
     [](double w, double g, double mean_square, double lr) { return w - lr * g / (std::sqrt(0.1 + mean_square) + 1e-8); }},
    // In the first step the bias corrections undo the averaging: m/(1-b1) = g, v/(1-b2) = g^2.
    {"Adam", SPARSE_ADAM, 2, 0, [](double w, double g, double, double lr) { return w - lr * g / (std::fabs(g) + 1e-8); }},
};

class SparseOptimizerTest : public testing::TestWithParam<Kind> {
 protected:
  // A row's weights and slots, each with a guard behind it.
  struct Row {
    Row(const SparseOptimizer& optimizer, uint32_t dim)
        : dim(dim), weights(dim + kGuard, kGuardValue), slots(optimizer.num_slot_values(dim) + kGuard, kGuardValue) {
      optimizer.Init(slots.data(), dim);
    }
    void Apply(const SparseOptimizer& optimizer, const std::vector<float>& gradient, uint64_t step, float rate, float scale) {
      optimizer.Apply(weights.data(), slots.data(), gradient.data(), dim, step, rate, scale);
    }
    bool operator==(const Row&) const = default;

    static constexpr size_t kGuard = 16;
    static constexpr float kGuardValue = 77;
    uint32_t dim;
    std::vector<float> weights, slots;
  };
  std::unique_ptr<SparseOptimizer> Make(uint32_t dim) {
    return MakeSparseOptimizer(MakeTableSpec(1, dim, GetParam().value));
  }
};

TEST_P(SparseOptimizerTest, InitFillsTheSlotsAndNothingElse) {
  for (uint32_t dim : {1, 3, 16, 65}) {
    const auto optimizer = Make(dim);
    const size_t expected = GetParam().num_slots < 0 ? 1 : dim * static_cast<size_t>(GetParam().num_slots);
    ASSERT_EQ(optimizer->num_slot_values(dim), expected);
    const Row row(*optimizer, dim);
    for (size_t i = 0; i < row.slots.size(); ++i) {
      EXPECT_EQ(row.slots[i], i < expected ? GetParam().initial_slot : Row::kGuardValue) << i;
    }
  }
}

TEST_P(SparseOptimizerTest, FirstStepMatchesTheFormula) {
  for (uint32_t dim : {1, 3, 16, 65}) {
    const auto optimizer = Make(dim);
    Row row(*optimizer, dim);
    const auto weights = MakeValues(1, dim), gradient = MakeValues(2, dim);
    std::copy(weights.begin(), weights.end(), row.weights.begin());
    row.Apply(*optimizer, gradient, 1, 0.01f, 0.25f);
    double mean_square = 0;
    for (float g : gradient) mean_square += 0.25 * g * 0.25 * g / dim;
    for (uint32_t i = 0; i < dim; ++i) {
      EXPECT_NEAR(row.weights[i], GetParam().first_step(weights[i], 0.25 * gradient[i], mean_square, 0.01), 2e-6) << i;
    }
  }
}

TEST_P(SparseOptimizerTest, NeverWritesBeyondTheRow) {
  const auto optimizer = Make(17);
  Row row(*optimizer, 17);
  row.Apply(*optimizer, MakeValues(3, 17), 1, 0.1f, 1);
  for (size_t i = 0; i < Row::kGuard; ++i) {
    ASSERT_EQ(row.weights[17 + i], Row::kGuardValue) << i;
    ASSERT_EQ(row.slots[row.slots.size() - 1 - i], Row::kGuardValue) << i;
  }
}

TEST_P(SparseOptimizerTest, ScaleMultipliesTheGradient) {
  const auto optimizer = Make(8);
  Row scaled(*optimizer, 8), halved(*optimizer, 8);
  auto gradient = MakeValues(4, 8);
  scaled.Apply(*optimizer, gradient, 1, 0.1f, 0.5f);
  for (float& g : gradient) g *= 0.5f;  // exact
  halved.Apply(*optimizer, gradient, 1, 0.1f, 1);
  EXPECT_EQ(scaled, halved);
}

TEST_P(SparseOptimizerTest, RowsDoNotShareState) {
  const auto optimizer = Make(4);
  Row used(*optimizer, 4), fresh(*optimizer, 4), alone(*optimizer, 4);
  const auto gradient = MakeValues(5, 4);
  for (uint64_t step = 1; step <= 3; ++step) used.Apply(*optimizer, gradient, step, 0.1f, 1);
  fresh.Apply(*optimizer, gradient, 4, 0.1f, 1);
  alone.Apply(*Make(4), gradient, 4, 0.1f, 1);
  EXPECT_EQ(fresh, alone);
}

TEST(RowwiseAdagradTest, OneAccumulatorOfTheMeanSquare) {
  for (uint32_t dim : {1, 3, 16, 65}) {
    const auto optimizer = MakeSparseOptimizer(MakeTableSpec(1, dim, SPARSE_ROWWISE_ADAGRAD));
    std::vector<float> weights = MakeValues(1, dim), slot(1);
    const auto first = weights, gradient = MakeValues(2, dim);
    optimizer->Init(slot.data(), dim);
    double accumulator = 0.1f;
    std::vector<double> expected(first.begin(), first.end());
    for (uint64_t step = 1; step <= 3; ++step) {
      optimizer->Apply(weights.data(), slot.data(), gradient.data(), dim, step, 0.01f, 0.25f);
      double squares = 0;
      for (float g : gradient) squares += 0.25 * g * 0.25 * g;
      accumulator += squares / dim;
      for (uint32_t i = 0; i < dim; ++i) expected[i] -= 0.01 * 0.25 * gradient[i] / (std::sqrt(accumulator) + 1e-8);
    }
    EXPECT_NEAR(slot[0], accumulator, 1e-6);
    for (uint32_t i = 0; i < dim; ++i) EXPECT_NEAR(weights[i], expected[i], 2e-6) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, SparseOptimizerTest, testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.name; });

TEST(CheckOptimizerTest, NamesTheFieldThatIsWrong) {
  TableSpec spec = MakeTableSpec(1, 4, SPARSE_ADAM);
  spec.set_beta2(1);
  EXPECT_NE(CheckOptimizer(spec).message().find("beta2"), absl::string_view::npos);
  spec = MakeTableSpec(1, 4, SPARSE_ADAGRAD);
  spec.set_epsilon(0);
  EXPECT_NE(CheckOptimizer(spec).message().find("epsilon"), absl::string_view::npos);
  spec.set_epsilon(std::nanf(""));
  EXPECT_FALSE(CheckOptimizer(spec).ok());
  spec = MakeTableSpec(1, 4, SPARSE_OPTIMIZER_UNSPECIFIED);
  EXPECT_TRUE(absl::IsInvalidArgument(CheckOptimizer(spec)));
}

}  // namespace
}  // namespace tandem::ps
