// A user's model made of operations: two towers that share one table, and a softmax over the
// batch's items. Checks what the operations must do together, also in a BF16 run.
#include <cmath>
#include <gtest/gtest.h>

#include "kernels/cast.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/autograd/ops/ops.h"
#include "trainer/autograd/parameter.h"

namespace tandem {
namespace {

using ::tandem::testing::CheckGradients;
using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

enum class Loss { SCORES, FUSED, BINARY };

// A user is the mean of his items' rows beside a gated copy; each side has a linear layer.
struct TwoTowers {
  static constexpr int64_t kUsers = 4, kRows = 6, kDim = 3, kHidden = 5;

  explicit TwoTowers(DType dtype)
      : table(Leaf({kRows, kDim}, 1, dtype)),
        user_weight(Leaf({2 * kDim, kHidden}, 2, dtype)),
        item_weight(Leaf({kDim, kHidden}, 3, dtype)) {}

  static Variable Leaf(Shape shape, uint64_t seed, DType dtype) {
    return Variable::Leaf(RandomTensor(shape, seed, dtype), "leaf");
  }

  Variable LossSum(Context& c, Loss loss) const {
    const Tensor history = Tensor::FromVector<int64_t>({2, 0, 5, 5, 1, 3}),
                 offsets = Tensor::FromVector<int64_t>({0, 2, 2, 5, 6}),
                 next = Tensor::FromVector<int64_t>({1, 4, 0, 2}),
                 own = Tensor::FromVector<int64_t>({0, 1, 2, 3});
    const Variable mean = ops::SegmentMean(c, ops::GatherRows(c, table, history), offsets);
    const Variable gated = ops::Multiply(c, mean, ops::Sigmoid(c, mean));
    const Variable users = ops::Linear(c, ops::Concat(c, {mean, gated}), user_weight, Variable());
    const Variable items = ops::Linear(c, ops::GatherRows(c, table, next), item_weight, Variable());
    switch (loss) {
      case Loss::SCORES:
        return ops::CrossEntropySum(c, ops::MatMulTransposed(c, users, items), own);
      case Loss::FUSED:
        return ops::LinearCrossEntropySum(c, users, items, /*weight_is_table=*/true, Variable(),
                                          own);
      case Loss::BINARY:
        return ops::BinaryCrossEntropySum(c, ops::RowDot(c, users, items),
                                          Tensor::FromVector<double>({1, 0, 0.5, 1}));
    }
    return Variable();
  }

  std::vector<Variable> leaves() const { return {table, user_weight, item_weight}; }

  const Variable table, user_weight, item_weight;
};

TEST(TwoTowerTest, GradientsMatchDifferencesForEveryLoss) {
  const TwoTowers model(DType::F64);
  for (const Loss loss : {Loss::SCORES, Loss::FUSED, Loss::BINARY})
    CheckGradients([&](Context& c) { return model.LossSum(c, loss); }, model.leaves(), 1e-5);
}

struct Step {
  double loss;
  std::vector<Tensor> gradients;
};

Step StepOf(const TwoTowers& model, Loss loss, DType compute) {
  StepFixture fixture;
  Context::Options options = fixture.Options();
  options.compute = compute;
  Context context(options);
  for (const Variable& leaf : model.leaves()) leaf.leaf().ClearGradient();
  const Variable sum = model.LossSum(context, loss);
  Backward(context, sum);
  Step step{sum.value().At(0), {}};
  for (const Variable& leaf : model.leaves())
    step.gradients.push_back(leaf.leaf().gradient().Clone());
  return step;
}

TEST(TwoTowerTest, TheFusedLossIsTheLossOfTheScores) {
  const TwoTowers model(DType::F64);
  const Step scores = StepOf(model, Loss::SCORES, DType::F64),
             fused = StepOf(model, Loss::FUSED, DType::F64);
  EXPECT_NEAR(fused.loss, scores.loss, 1e-12);
  for (size_t i = 0; i < scores.gradients.size(); ++i) {
    for (int64_t j = 0; j < scores.gradients[i].num_elements(); ++j)
      EXPECT_NEAR(fused.gradients[i].At(j), scores.gradients[i].At(j), 1e-12) << i << ", " << j;
  }
}

// In a BF16 run both towers' outputs are BF16, and so the table of the fused loss is.
TEST(TwoTowerTest, ABf16RunStaysCloseAndGivesGradientsInF32) {
  const TwoTowers model(DType::F32);
  for (const Loss loss : {Loss::SCORES, Loss::FUSED}) {
    const Step exact = StepOf(model, loss, DType::F32), rounded = StepOf(model, loss, DType::BF16);
    EXPECT_NEAR(rounded.loss, exact.loss, 0.02 * exact.loss);
    for (size_t i = 0; i < exact.gradients.size(); ++i) {
      ASSERT_EQ(rounded.gradients[i].dtype(), DType::F32);
      double difference = 0, size = 0;
      for (int64_t j = 0; j < exact.gradients[i].num_elements(); ++j) {
        difference += std::pow(rounded.gradients[i].At(j) - exact.gradients[i].At(j), 2);
        size += std::pow(exact.gradients[i].At(j), 2);
      }
      EXPECT_LT(std::sqrt(difference / size), 0.03) << i;
      EXPECT_GT(difference, 0) << i;
    }
  }
}

TEST(TwoTowerTest, ABf16TableGetsABf16Gradient) {
  StepFixture fixture;
  Context::Options options = fixture.Options();
  options.compute = DType::BF16;
  Context context(options);
  const Variable users = TwoTowers::Leaf({4, 5}, 1, DType::BF16),
                 items = TwoTowers::Leaf({4, 5}, 2, DType::BF16);
  Backward(context,
           ops::LinearCrossEntropySum(context, users, items, /*weight_is_table=*/true, Variable(),
                                      Tensor::FromVector<int64_t>({0, 1, 2, 3})));
  EXPECT_EQ(users.leaf().gradient().dtype(), DType::BF16);
  EXPECT_EQ(items.leaf().gradient().dtype(), DType::BF16);
}

class Bf16LossTest : public ::testing::Test {
 protected:
  // Logits of BF16 that are exact in F32 too.
  Bf16LossTest() : wide_(Tensor::Empty(logits_.shape(), DType::F32)) {
    kernels::Cast(wide_.view(), logits_.view(), fixture_.stream());
  }
  // The gradient of BF16 logits is the gradient of the same F32 logits, rounded.
  void ExpectRounded(const std::function<Variable(Context&, const Variable&)>& loss, Shape shape) {
    Context context(fixture_.Options());
    const Variable exact = Variable::Leaf(wide_.Reshape(shape), "exact"),
                   rounded = Variable::Leaf(logits_.Reshape(shape), "rounded");
    const Variable wanted = loss(context, exact), found = loss(context, rounded);
    Backward(context, wanted);
    Backward(context, found);
    ASSERT_EQ(found.dtype(), DType::F32);
    EXPECT_NEAR(found.value().At(0), wanted.value().At(0), 1e-5);
    ASSERT_EQ(rounded.leaf().gradient().dtype(), DType::BF16);
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      EXPECT_EQ(rounded.leaf().gradient().At(i),
                ToFloat(ToBFloat16(static_cast<float>(exact.leaf().gradient().At(i)))));
    }
  }

  StepFixture fixture_;
  const Tensor logits_ = RandomTensor({4, 3}, 1, DType::BF16), wide_;
};

TEST_F(Bf16LossTest, CrossEntropyOfBf16LogitsIsF32) {
  const Tensor target = Tensor::FromVector<int64_t>({2, 0, 1, 1});
  ExpectRounded([&](Context& c, const Variable& x) { return ops::CrossEntropySum(c, x, target); },
                {4, 3});
}

TEST_F(Bf16LossTest, BinaryCrossEntropyOfBf16LogitsIsF32) {
  const Tensor label = Tensor::FromVector<float>({1, 0, 0.5f, 0, 0, 1, 1, 0.25f, 1, 1, 0, 0});
  ExpectRounded(
      [&](Context& c, const Variable& x) { return ops::BinaryCrossEntropySum(c, x, label); }, {12});
  ExpectRounded([&](Context& c, const Variable& x) { return ops::BinaryCrossEntropySum(c, x, x); },
                {12});
}

TEST(MixedTypesTest, ConcatAndMultiplyOfActivationsAndRowsAreF32) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable hidden = Variable::Leaf(RandomTensor({3, 4}, 1, DType::BF16), "hidden"),
                 rows = Variable::Leaf(RandomTensor({3, 4}, 2, DType::F32), "rows");
  const Variable both = ops::Concat(context, {hidden, rows}),
                 product = ops::Multiply(context, hidden, rows);
  ASSERT_EQ(both.dtype(), DType::F32);
  ASSERT_EQ(product.dtype(), DType::F32);
  EXPECT_EQ(ops::Concat(context, {hidden, hidden}).dtype(), DType::BF16);
  const Tensor gradient = RandomTensor({3, 8}, 3, DType::F32);
  Backward(context, {{both, gradient}, {product, RandomTensor({3, 4}, 4, DType::F32)}});
  EXPECT_EQ(hidden.leaf().gradient().dtype(), DType::BF16);
  EXPECT_EQ(rows.leaf().gradient().dtype(), DType::F32);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(both.value().At(i / 4 * 8 + i % 4), hidden.value().At(i));
    EXPECT_EQ(both.value().At(i / 4 * 8 + 4 + i % 4), rows.value().At(i));
    EXPECT_EQ(product.value().At(i),
              static_cast<float>(hidden.value().At(i)) * static_cast<float>(rows.value().At(i)));
  }
}

}  // namespace
}  // namespace tandem
