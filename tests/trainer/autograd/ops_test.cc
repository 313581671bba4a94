#include "trainer/autograd/ops/ops.h"

#include <cmath>
#include <gtest/gtest.h>

#include "kernels/cast.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/nn/blocks.h"

namespace tandem {
namespace {

using ::tandem::testing::CheckGradients;
using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

Variable Leaf(Shape shape, uint64_t seed, const char* name = "x") {
  return Variable::Leaf(RandomTensor(shape, seed), name);
}

TEST(OpsGradientTest, Linear) {
  const Variable x = Leaf({5, 3}, 1, "x"), w = Leaf({3, 4}, 2, "w"), b = Leaf({4}, 3, "b");
  CheckGradients([&](Context& c) { return ops::Linear(c, x, w, b); }, {x, w, b});
  CheckGradients([&](Context& c) { return ops::Linear(c, x, w, Variable()); }, {x, w});
}

TEST(OpsGradientTest, LinearActivate) {
  const Variable x = Leaf({2, 3, 4}, 1, "x"), w = Leaf({4, 2}, 2, "w"), b = Leaf({2}, 3, "b");
  for (const auto activation : {kernels::Activation::GELU_TANH, kernels::Activation::SILU}) {
    CheckGradients([&](Context& c) { return ops::LinearActivate(c, x, w, b, activation); },
                   {x, w, b});
    CheckGradients([&](Context& c) { return ops::LinearActivate(c, x, w, Variable(), activation); },
                   {x, w});
  }
}

TEST(OpsGradientTest, LinearKeepsLeadingExtents) {
  const Variable x = Leaf({2, 3, 4}, 1), w = Leaf({4, 2}, 2, "w"), b = Leaf({2}, 3, "b");
  CheckGradients([&](Context& c) { return ops::Linear(c, x, w, b); }, {x, w, b});
}

TEST(OpsGradientTest, MatMulTransposed) {
  const Variable a = Leaf({3, 4}, 1, "a"), b = Leaf({5, 4}, 2, "b");
  CheckGradients([&](Context& c) { return ops::MatMulTransposed(c, a, b); }, {a, b});
}

TEST(OpsGradientTest, AddScaleReshape) {
  const Variable a = Leaf({3, 2}, 1, "a"), b = Leaf({3, 2}, 2, "b");
  CheckGradients([&](Context& c) { return ops::Add(c, a, ops::Scale(c, b, -2.5)); }, {a, b});
  CheckGradients([&](Context& c) { return ops::Reshape(c, a, Shape{2, 3}); }, {a});
  const Tensor rows = Tensor::FromVector<int64_t>({1, 2, 3}),
               columns = Tensor::FromVector<int64_t>({3, 1});
  CheckGradients([&](Context& c) { return ops::AddWhereEqual(c, a, rows, columns, -2); }, {a});
}

TEST(OpsGradientTest, Multiply) {
  const Variable a = Leaf({3, 5}, 1, "a"), b = Leaf({3, 5}, 2, "b");
  CheckGradients([&](Context& c) { return ops::Multiply(c, a, b); }, {a, b});
  CheckGradients([&](Context& c) { return ops::Multiply(c, a, a); }, {a});
  CheckGradients([&](Context& c) { return ops::Multiply(c, a, Variable::Constant(b.value())); },
                 {a});
}

TEST(OpsGradientTest, ConcatOfManyPartsKeepsLeadingExtents) {
  const Variable a = Leaf({2, 3, 1}, 1, "a"), b = Leaf({2, 3, 4}, 2, "b"),
                 d = Leaf({2, 3, 2}, 3, "d"), none = Variable::Constant(RandomTensor({2, 3, 0}, 4));
  CheckGradients([&](Context& c) { return ops::Concat(c, {a, none, b, d, a}); }, {a, b, d});
  CheckGradients([&](Context& c) { return ops::Concat(c, {b}); }, {b});
  StepFixture fixture;
  Context context(fixture.Options());
  const Tensor y = ops::Concat(context, {a, b, d}).value();
  ASSERT_TRUE(y.shape() == (Shape{2, 3, 7})) << y.shape();
  for (int64_t r = 0; r < 6; ++r) {
    EXPECT_EQ(y.At(r * 7), a.value().At(r));
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(y.At(r * 7 + 1 + i), b.value().At(r * 4 + i));
    for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(y.At(r * 7 + 5 + i), d.value().At(r * 2 + i));
  }
}

TEST(ConcatTest, PartsWithOtherLeadingExtentsDie) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable a = Leaf({2, 3}, 1), b = Leaf({3, 3}, 2);
  EXPECT_DEATH(ops::Concat(context, {a, b}), ".3, 3. beside .2, 3.");
}

TEST(OpsGradientTest, SegmentMeanOverUnevenSegments) {
  const Variable x = Leaf({7, 3}, 1);
  const Tensor offsets = Tensor::FromVector<int64_t>({0, 2, 2, 6, 7, 7});
  CheckGradients([&](Context& c) { return ops::SegmentMean(c, x, offsets); }, {x});
}

TEST(OpsGradientTest, ScaleRows) {
  const Variable x = Leaf({3, 4}, 1);
  const Tensor scale = RandomTensor({3}, 2);
  CheckGradients([&](Context& c) { return ops::ScaleRows(c, x, scale); }, {x});
}

TEST(OpsGradientTest, ConcatRowsAlsoWithoutRowsAbove) {
  const Variable a = Leaf({2, 3}, 1, "a"), b = Leaf({4, 3}, 2, "b"),
                 none = Variable::Constant(RandomTensor({0, 3}, 3));
  CheckGradients([&](Context& c) { return ops::ConcatRows(c, a, b); }, {a, b});
  CheckGradients([&](Context& c) { return ops::ConcatRows(c, none, b); }, {b});
  StepFixture fixture;
  Context context(fixture.Options());
  const Tensor y = ops::ConcatRows(context, a, b).value();
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(y.At(i), a.value().At(i));
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(y.At(6 + i), b.value().At(i));
}

TEST(OpsGradientTest, AddRowsAtPlacesOfWhichOneComesTwice) {
  const Variable x = Leaf({4, 3}, 1, "x"), rows = Leaf({3, 3}, 2, "rows");
  const Tensor index = Tensor::FromVector<int64_t>({3, 0, 3});
  CheckGradients([&](Context& c) { return ops::AddRowsAt(c, x, rows, index); }, {x, rows});
  StepFixture fixture;
  Context context(fixture.Options());
  const Tensor y = ops::AddRowsAt(context, x, rows, index).value();
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(y.At(i), x.value().At(i) + rows.value().At(3 + i));
    EXPECT_EQ(y.At(3 + i), x.value().At(3 + i)) << "no row goes there";
    EXPECT_EQ(y.At(9 + i), x.value().At(9 + i) + rows.value().At(i) + rows.value().At(6 + i));
  }
}

TEST(OpsGradientTest, AddRowsAtWithoutRows) {
  const Variable x = Leaf({4, 3}, 1, "x"), none = Variable::Constant(RandomTensor({0, 3}, 2));
  CheckGradients(
      [&](Context& c) {
        return ops::AddRowsAt(c, x, none, Tensor::FromVector(std::vector<int64_t>()));
      },
      {x});
}

TEST(OpsGradientTest, Activations) {
  for (auto activation :
       {kernels::Activation::GELU, kernels::Activation::GELU_TANH, kernels::Activation::RELU,
        kernels::Activation::SILU, kernels::Activation::SIGMOID}) {
    const Variable x = Leaf({3, 5}, 4);
    CheckGradients([&](Context& c) { return ops::Activate(c, x, activation); }, {x});
  }
}

TEST(OpsGradientTest, SwiGlu) {
  const Variable x = Leaf({2, 3, 10}, 4);
  CheckGradients([&](Context& c) { return ops::SwiGlu(c, x); }, {x});
}

TEST(OpsGradientTest, Softmax) {
  const Variable x = Leaf({4, 7}, 5);
  CheckGradients([&](Context& c) { return ops::Softmax(c, x); }, {x});
}

TEST(OpsGradientTest, RowDot) {
  const Variable a = Leaf({4, 3}, 1, "a"), b = Leaf({4, 3}, 2, "b");
  CheckGradients([&](Context& c) { return ops::RowDot(c, a, b); }, {a, b});
}

TEST(OpsGradientTest, GatherRowsSumsRepeatedIndices) {
  const Variable table = Leaf({4, 3}, 1, "table");
  const Tensor index = Tensor::FromVector<int64_t>({2, 0, 2, 2, 1});
  CheckGradients([&](Context& c) { return ops::GatherRows(c, table, index); }, {table});
}

TEST(OpsGradientTest, Norms) {
  const Variable x = Leaf({4, 6}, 1, "x"), gamma = Leaf({6}, 2, "gamma"),
                 beta = Leaf({6}, 3, "beta");
  CheckGradients([&](Context& c) { return ops::LayerNorm(c, x, gamma, beta, 1e-5); },
                 {x, gamma, beta});
  CheckGradients([&](Context& c) { return ops::LayerNorm(c, x, gamma, Variable(), 1e-5); },
                 {x, gamma});
  CheckGradients([&](Context& c) { return ops::LayerNorm(c, x, Variable(), Variable(), 1e-5); },
                 {x});
  CheckGradients([&](Context& c) { return ops::RmsNorm(c, x, gamma, 1e-5); }, {x, gamma});
  CheckGradients([&](Context& c) { return ops::RmsNorm(c, x, Variable(), 1e-5); }, {x});
}

TEST(OpsGradientTest, NormsOfResiduals) {
  const Variable x = Leaf({4, 6}, 1, "x"), y = Leaf({4, 6}, 2, "y"), gamma = Leaf({6}, 3, "gamma"),
                 beta = Leaf({6}, 4, "beta");
  const Tensor rows = Tensor::FromVector<int64_t>({0, 1, 7, 40});
  for (const float dropout : {0.0f, 0.4f}) {
    const ops::Residual both{x, y, dropout, 11, rows};
    CheckGradients([&](Context& c) { return ops::LayerNorm(c, both, gamma, beta, 1e-5).output; },
                   {x, y, gamma, beta});
    CheckGradients([&](Context& c) { return ops::RmsNorm(c, both, gamma, 1e-5).output; },
                   {x, y, gamma});
    CheckGradients([&](Context& c) { return ops::LayerNorm(c, both, gamma, beta, 1e-5).sum; },
                   {x, y});
    CheckGradients(
        [&](Context& c) {
          const auto [sum, output] = ops::RmsNorm(c, both, gamma, 1e-5);
          return ops::Add(c, ops::Scale(c, output, -2.5), sum);
        },
        {x, y, gamma});
  }
  CheckGradients(
      [&](Context& c) {
        const auto [sum, output] = ops::LayerNorm(c, ops::Residual{x}, gamma, beta, 1e-5);
        return ops::Add(c, ops::Scale(c, output, -2.5), sum);
      },
      {x, gamma, beta});
}

TEST(OpsGradientTest, DropoutMaskIsTheSameInBothDirections) {
  const Variable x = Leaf({5, 6}, 1);
  const Tensor rows = Tensor::FromVector<int64_t>({0, 1, 7, 8, 40});
  CheckGradients([&](Context& c) { return ops::Dropout(c, x, rows, 0.4f, 11); }, {x});
}

TEST(OpsGradientTest, SelfAttentionWithSharedHeadsAndRotation) {
  const Tensor offsets = Tensor::FromVector<int64_t>({0, 3, 4, 9});
  const Tensor rows = Tensor::FromVector<int64_t>({2, 3, 4, 14, 15, 16, 17, 18, 19});
  const ops::RotaryOptions turn{ops::RotaryTable(5, 4, 100, DType::F64),
                                Tensor::FromVector<int64_t>({0, 1, 2, 0, 0, 1, 2, 3, 4})};
  for (const int64_t kv_heads : {1, 2, 4}) {
    const Variable queries = Leaf({9, 4 * 4}, 8, "queries"),
                   keys_values = Leaf({9, 2 * kv_heads * 4}, 9, "keys_values");
    const ops::AttentionOptions options{.heads = 4,
                                        .kv_heads = kv_heads,
                                        .max_length = 5,
                                        .scale = 0.7,
                                        .dropout = 0.3f,
                                        .operation = 9};
    CheckGradients(
        [&](Context& c) {
          return ops::SelfAttention(c, ops::Rotate(c, queries, turn, 4, 4),
                                    ops::Rotate(c, keys_values, turn, kv_heads, 2 * kv_heads),
                                    offsets, rows, options);
        },
        {queries, keys_values});
  }
}

TEST(OpsGradientTest, SelfAttentionOverUnevenSequences) {
  const Tensor offsets = Tensor::FromVector<int64_t>({0, 3, 3, 4, 9});
  const Tensor rows = Tensor::FromVector<int64_t>({2, 3, 4, 14, 15, 16, 17, 18, 19});
  for (const bool causal : {true, false}) {
    for (const float dropout : {0.0f, 0.3f}) {
      const Variable qkv = Leaf({9, 3 * 4}, 8, "qkv");
      const ops::AttentionOptions options{.heads = 2,
                                          .max_length = 5,
                                          .causal = causal,
                                          .scale = 0.7,
                                          .dropout = dropout,
                                          .operation = 3};
      CheckGradients([&](Context& c) { return ops::SelfAttention(c, qkv, offsets, rows, options); },
                     {qkv});
    }
  }
}

TEST(OpsGradientTest, Losses) {
  const Variable logits = Leaf({5, 4}, 9, "logits"), scores = Leaf({6}, 10, "scores");
  const Tensor target = Tensor::FromVector<int64_t>({0, 3, 1, 1, 2});
  CheckGradients([&](Context& c) { return ops::CrossEntropySum(c, logits, target); }, {logits});
  const Variable others = Leaf({7}, 11, "others");
  CheckGradients([&](Context& c) { return ops::BinaryCrossEntropySum(c, scores, others); },
                 {scores, others});
  const Tensor label = Tensor::FromVector<double>({0, 1, 1, 0, 0.25, 1, 0});
  CheckGradients([&](Context& c) { return ops::BinaryCrossEntropySum(c, others, label); },
                 {others});
}

TEST(OpsGradientTest, LinearCrossEntropySum) {
  const Tensor target = Tensor::FromVector<int64_t>({0, 3, 1, 1, 2});
  const Variable hidden = Leaf({5, 3}, 11, "hidden"), bias = Leaf({4}, 12, "bias");
  for (const bool table : {false, true}) {
    const Variable w = Leaf(table ? Shape{4, 3} : Shape{3, 4}, 13, "w");
    CheckGradients(
        [&](Context& c) { return ops::LinearCrossEntropySum(c, hidden, w, table, bias, target); },
        {hidden, w, bias});
    // A factor behind the sum scales gradients that were formed in the forward pass.
    CheckGradients(
        [&](Context& c) {
          return ops::Scale(c, ops::LinearCrossEntropySum(c, hidden, w, table, Variable(), target),
                            -2.5);
        },
        {hidden, w});
  }
}

// Leaves of f32 and their gradients, to compare two ways to one loss.
struct LossGradients {
  double loss;
  std::vector<Tensor> gradients;
};

LossGradients GradientsOf(const std::function<Variable(Context&)>& function,
                          const std::vector<Variable>& leaves) {
  StepFixture fixture;
  Context context(fixture.Options());
  for (const Variable& leaf : leaves) leaf.leaf().ClearGradient();
  const Variable loss = function(context);
  Backward(context, loss);
  LossGradients result{loss.value().At(0), {}};
  for (const Variable& leaf : leaves) result.gradients.push_back(leaf.leaf().gradient().Clone());
  return result;
}

TEST(LinearCrossEntropyOpTest, EqualsTheLossOfTheLogits) {
  Tensor target = Tensor::Empty(Shape{70}, DType::I64);
  for (int64_t i = 0; i < 70; ++i) target.data<int64_t>()[i] = i * 7 % 33;
  const auto leaf = [](Shape shape, uint64_t seed) {
    return Variable::Leaf(RandomTensor(shape, seed, DType::F32), "x");
  };
  const Variable hidden = leaf({70, 16}, 1), weight = leaf({16, 33}, 2), bias = leaf({33}, 3);
  const LossGradients wanted = GradientsOf(
      [&](Context& c) {
        return ops::CrossEntropySum(c, ops::Linear(c, hidden, weight, bias), target);
      },
      {hidden, weight, bias});
  const LossGradients found = GradientsOf(
      [&](Context& c) {
        return ops::LinearCrossEntropySum(c, hidden, weight, false, bias, target);
      },
      {hidden, weight, bias});
  EXPECT_NEAR(found.loss, wanted.loss, 1e-6 * wanted.loss);
  for (size_t i = 0; i < found.gradients.size(); ++i) {
    for (int64_t j = 0; j < found.gradients[i].num_elements(); ++j) {
      ASSERT_NEAR(found.gradients[i].At(j), wanted.gradients[i].At(j), 2e-5)
          << "leaf " << i << " element " << j;
    }
  }
}

// The rounding error of one number in bf16, and of a sum of `terms` products of two rounded numbers
// of about 1.
double Rounding(double x) { return std::abs(x) * 0x1p-8; }
double Rounding(double x, int64_t terms) {
  return Rounding(x) + 8 * 0x1p-8 * std::sqrt(static_cast<double>(terms));
}

TEST(Bf16OpTest, LinearTakesShadowsAndKeepsGradientsOfParametersInF32) {
  StepFixture fixture;
  ParameterSet parameters(1, DType::F32);
  const Variable weight = parameters.Normal("w", Shape{40, 24}, 1);
  parameters.MakeShadows(fixture.stream());
  Context::Options options = fixture.Options();
  options.compute = DType::BF16;
  Context context(options);
  const Variable x = Variable::Leaf(RandomTensor({50, 40}, 1, DType::F32), "x");
  const Variable y = ops::Linear(context, x, weight, Variable());
  const Tensor dy = RandomTensor({50, 24}, 2, DType::F32);
  Backward(context, {{y, dy}});
  ASSERT_EQ(y.dtype(), DType::BF16);
  const Tensor &dx = x.leaf().gradient(), &dw = weight.leaf().gradient();
  ASSERT_EQ(dx.dtype(), DType::F32);
  ASSERT_EQ(dw.dtype(), DType::F32);
  for (int64_t r = 0; r < 50; ++r) {
    for (int64_t o = 0; o < 24; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < 40; ++i)
        sum += x.value().At(r * 40 + i) * weight.value().At(i * 24 + o);
      ASSERT_NEAR(ToFloat(y.value().data<BFloat16>()[r * 24 + o]), sum, Rounding(sum, 40));
    }
    for (int64_t i = 0; i < 40; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < 24; ++o) sum += dy.At(r * 24 + o) * weight.value().At(i * 24 + o);
      ASSERT_NEAR(dx.At(r * 40 + i), sum, Rounding(sum, 24));
    }
  }
  for (int64_t i = 0; i < 40; ++i) {
    for (int64_t o = 0; o < 24; ++o) {
      double sum = 0;
      for (int64_t r = 0; r < 50; ++r) sum += x.value().At(r * 40 + i) * dy.At(r * 24 + o);
      ASSERT_NEAR(dw.At(i * 24 + o), sum, Rounding(sum, 50));
    }
  }
}

TEST(Bf16OpTest, LinearReadsTheShadowNotTheValue) {
  StepFixture fixture;
  ParameterSet parameters(1, DType::F32);
  const Variable weight = parameters.Constant("w", Shape{2, 1}, 1);
  parameters.MakeShadows(fixture.stream());
  weight.value().Set(0, 5);
  Context::Options options = fixture.Options();
  options.compute = DType::BF16;
  Context context(options);
  const Variable x = Variable::Constant(Tensor::FromVector<float>({1, 1}, Shape{1, 2}));
  EXPECT_EQ(ToFloat(ops::Linear(context, x, weight, Variable()).value().data<BFloat16>()[0]), 2);
  parameters.RefreshShadows(fixture.stream());
  EXPECT_EQ(ToFloat(ops::Linear(context, x, weight, Variable()).value().data<BFloat16>()[0]), 6);
}

// One operation forward and back has the bits of three operations, for any mix of types.
TEST(ResidualOpTest, HasTheBitsOfItsOperations) {
  const Tensor places = Tensor::FromVector<int64_t>({3, 9, 4});
  for (const DType compute : {DType::F32, DType::BF16}) {
    for (const float dropout : {0.0f, 0.4f}) {
      SCOPED_TRACE(::testing::Message() << NameOf(compute) << ", " << dropout);
      std::vector<Tensor> results[2];
      for (const bool fused : {false, true}) {
        StepFixture fixture;
        Context::Options options = fixture.Options();
        options.compute = compute;
        Context c(options);
        const Variable x = Variable::Leaf(RandomTensor({3, 20}, 1, DType::F32), "x");
        const Variable y = Variable::Leaf(RandomTensor({3, 20}, 2, compute), "y");
        const Variable gamma = Variable::Leaf(RandomTensor({20}, 3, DType::F32), "gamma");
        ops::Normed normed;
        if (fused) {
          normed = ops::LayerNorm(c, {x, y, dropout, 5, places}, gamma, Variable(), 1e-5);
        } else {
          normed.sum = ops::Add(c, x, ops::Dropout(c, y, places, dropout, 5));
          normed.output = ops::LayerNorm(c, normed.sum, gamma, Variable(), 1e-5);
        }
        Backward(c, {{normed.output, RandomTensor({3, 20}, 4, compute)},
                     {ops::Scale(c, normed.sum, 0.3), RandomTensor({3, 20}, 5, DType::F32)}});
        results[fused] = {normed.sum.value(), normed.output.value(), x.leaf().gradient(),
                          y.leaf().gradient(), gamma.leaf().gradient()};
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        ASSERT_EQ(results[1][i].dtype(), results[0][i].dtype()) << i;
        EXPECT_EQ(HashTensor("", 0, results[1][i]), HashTensor("", 0, results[0][i])) << i;
      }
    }
  }
}

// Both terms of a sum get its gradient. One term must not add to it in place while the other waits.
TEST(ResidualOpTest, AGradientThatTwoTermsShareIsNotAddedToInPlace) {
  std::vector<Tensor> gradients;
  for (const bool placed : {false, true}) {
    StepFixture fixture;
    Context c(fixture.Options());
    const Variable x = Variable::Leaf(RandomTensor({3, 4}, 1), "x"),
                   z = Variable::Leaf(RandomTensor({3, 4}, 2), "z");
    if (placed) x.leaf().PlaceGradient(Tensor::Empty(Shape{3, 4}, DType::F64));
    const Variable y = ops::Scale(c, z, 1);
    const Variable output = ops::RmsNorm(c, ops::Residual{x, y}, Variable(), 1e-5).output;
    Backward(c, ops::Add(c, output, ops::Scale(c, x, 3)));
    gradients.push_back(z.leaf().gradient());
  }
  EXPECT_EQ(HashTensor("", 0, gradients[1]), HashTensor("", 0, gradients[0]));
}

TEST(MixedTypesTest, EachBranchOfASumGetsItsOwnTypeOfGradient) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable residual = Variable::Leaf(RandomTensor(Shape{3, 5}, 1, DType::F32), "residual");
  const Variable activation =
      Variable::Leaf(RandomTensor(Shape{3, 5}, 2, DType::BF16), "activation");
  const Variable sum = ops::Add(context, activation, residual);
  ASSERT_EQ(sum.dtype(), DType::F32);
  const Tensor gradient = RandomTensor(Shape{3, 5}, 3, DType::F32);
  Backward(context, {{sum, gradient}});
  ASSERT_EQ(residual.leaf().gradient().dtype(), DType::F32);
  ASSERT_EQ(activation.leaf().gradient().dtype(), DType::BF16);
  for (int i = 0; i < 15; ++i) {
    EXPECT_EQ(sum.value().At(i), static_cast<float>(residual.value().At(i)) +
                                     static_cast<float>(activation.value().At(i)));
    EXPECT_EQ(residual.leaf().gradient().At(i), gradient.At(i));
    EXPECT_EQ(activation.leaf().gradient().At(i),
              ToFloat(ToBFloat16(static_cast<float>(gradient.At(i)))));
  }
}

TEST(MixedTypesTest, RowDotOfActivationsAndRowsIsF32) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable hidden = Variable::Leaf(RandomTensor(Shape{3, 4}, 1, DType::BF16), "hidden");
  const Variable rows = Variable::Leaf(RandomTensor(Shape{3, 4}, 2, DType::F32), "rows");
  const Variable scores = ops::RowDot(context, hidden, rows);
  ASSERT_EQ(scores.dtype(), DType::F32);
  const Tensor gradient = RandomTensor(Shape{3}, 3, DType::F32);
  Backward(context, {{scores, gradient}});
  const Tensor& dhidden = hidden.leaf().gradient();
  const Tensor& drows = rows.leaf().gradient();
  ASSERT_EQ(dhidden.dtype(), DType::BF16);
  ASSERT_EQ(drows.dtype(), DType::F32);
  for (int i = 0; i < 12; ++i) {
    const float g = gradient.data<float>()[i / 4], h = static_cast<float>(hidden.value().At(i));
    EXPECT_EQ(dhidden.At(i), ToFloat(ToBFloat16(rows.value().data<float>()[i] * g)));
    EXPECT_EQ(drows.data<float>()[i], h * g);
  }
}

TEST(MixedTypesTest, DropoutOfBf16KeepsTheSameElementsInBothDirections) {
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable x = Variable::Leaf(RandomTensor(Shape{4, 70}, 1, DType::BF16), "x");
  const Variable y = ops::Dropout(context, x, Tensor::FromVector<int64_t>({3, 4, 9, 11}), 0.5f, 7);
  ASSERT_EQ(y.dtype(), DType::BF16);
  Backward(context,
           {{y, x.value()}});  // the gradient of each element is its value: so is what comes back
  int kept = 0;
  for (int i = 0; i < 280; ++i) {
    EXPECT_EQ(x.leaf().gradient().At(i), y.value().At(i));
    kept += y.value().At(i) != 0;
  }
  EXPECT_GT(kept, 100);
  EXPECT_LT(kept, 180);
}

// x [9, 8] through norm, qkv projection and attention, with an f32 gradient of the result.
struct AttentionRun {
  Tensor output, dx, dgamma;

  explicit AttentionRun(DType compute) {
    StepFixture fixture;
    ParameterSet parameters(1, DType::F32);
    const Variable weight = parameters.Normal("w", Shape{8, 24}, 0.5),
                   gamma = parameters.Normal("gamma", Shape{8}, 1);
    const Variable x = Variable::Leaf(RandomTensor({9, 8}, 1, DType::F32), "x");
    Context::Options options = fixture.Options();
    options.compute = compute;
    Context context(options);
    const Variable normal = ops::LayerNorm(context, x, gamma, Variable(), 1e-5);
    EXPECT_EQ(normal.dtype(), compute);
    const Variable qkv = ops::Linear(context, normal, weight, Variable());
    const Variable mixed =
        ops::SelfAttention(context, qkv, Tensor::FromVector<int64_t>({0, 4, 9}),
                           Tensor::FromVector<int64_t>({0, 1, 2, 3, 5, 6, 7, 8, 9}),
                           {.heads = 2, .max_length = 5, .scale = 0.5, .operation = 3});
    EXPECT_EQ(mixed.dtype(), compute);
    Backward(context, {{mixed, RandomTensor({9, 8}, 2, DType::F32)}});
    output = Tensor::Empty(mixed.shape(), DType::F32);
    kernels::Cast(output.view(), mixed.value().view(), context.stream());
    dx = x.leaf().gradient();
    dgamma = gamma.leaf().gradient();
  }
};

TEST(Bf16OpTest, NormAndAttentionStayCloseToF32AndReturnF32Gradients) {
  const AttentionRun exact(DType::F32), rounded(DType::BF16);
  for (const auto part : {&AttentionRun::output, &AttentionRun::dx, &AttentionRun::dgamma}) {
    const Tensor &wanted = exact.*part, &found = rounded.*part;
    ASSERT_EQ(found.dtype(), DType::F32);
    double difference = 0, size = 0;
    for (int64_t i = 0; i < wanted.num_elements(); ++i) {
      difference += std::pow(found.At(i) - wanted.At(i), 2);
      size += std::pow(wanted.At(i), 2);
    }
    EXPECT_LT(std::sqrt(difference / size), 0.02);
    EXPECT_GT(difference, 0);
  }
}

TEST(Bf16OpTest, NormsOfBf16RowsKeepF32Statistics) {
  StepFixture fixture;
  Context::Options options = fixture.Options();
  options.compute = DType::BF16;
  Context context(options);
  const Tensor rounded = RandomTensor({9, 8}, 1, DType::BF16),
               exact = Tensor::Empty(rounded.shape(), DType::F32);
  kernels::Cast(exact.view(), rounded.view(), context.stream());
  const Tensor gradient = RandomTensor({9, 8}, 2, DType::F32);
  for (const bool centred : {true, false}) {
    Tensor y[2], dx[2], dgamma[2];
    for (int i = 0; i < 2; ++i) {
      const Variable x = Variable::Leaf(i == 0 ? exact : rounded, "x");
      const Variable gamma = Variable::Leaf(RandomTensor({8}, 3, DType::F32), "gamma");
      const Variable normal = centred ? ops::LayerNorm(context, x, gamma, Variable(), 1e-5)
                                      : ops::RmsNorm(context, x, gamma, 1e-5);
      Backward(context, {{normal, gradient}});
      y[i] = normal.value(), dx[i] = x.leaf().gradient(), dgamma[i] = gamma.leaf().gradient();
    }
    ASSERT_EQ(dx[1].dtype(), DType::BF16);
    ASSERT_EQ(dgamma[1].dtype(), DType::F32);
    for (int i = 0; i < 72; ++i) {
      EXPECT_EQ(y[1].At(i), y[0].At(i));  // both are rounded once, from the same f32
      EXPECT_NEAR(dx[1].At(i), dx[0].At(i), 0.03);
    }
    for (int i = 0; i < 8; ++i) EXPECT_NEAR(dgamma[1].At(i), dgamma[0].At(i), 0.05);
  }
}

TEST(LayersGradientTest, PostNormBlockWithDropout) {
  ParameterSet parameters(3, DType::F64);
  const nn::LinearOptions linear{.stddev = 0.5};
  const nn::BlockOptions options{.dim = 4,
                                 .heads = 2,
                                 .ffn_dim = 6,
                                 .dropout = 0.3f,
                                 .norm = {.epsilon = 1e-5},
                                 .qkv = linear,
                                 .up = linear,
                                 .residual = linear};
  const nn::PostNormBlock block(parameters, "block", options);
  const nn::PackedRows rows{Tensor::FromVector<int64_t>({0, 2, 5}),
                            Tensor::FromVector<int64_t>({2, 3, 1, 2, 3}),
                            Tensor::FromVector<int64_t>({2, 3, 5, 6, 7}), 4};
  const Variable x = Leaf({5, 4}, 12);
  std::vector<Variable> leaves{x};
  for (const auto& parameter : parameters.all()) leaves.push_back(parameter->variable);
  CheckGradients([&](Context& c) { return block.Forward(c, x, rows); }, leaves, 1e-5);
}

// The gradient of qkv overwrites qkv, unless another owner still holds qkv.
TEST(OpsTest, AttentionOverwritesOnlyWhatNobodyHolds) {
  StepFixture fixture;
  Tensor gradients[2];
  for (const bool hold : {false, true}) {
    Context context(fixture.Options());
    const Variable x = Variable::Leaf(RandomTensor({9, 24}, 1, DType::F32), "x");
    Variable qkv = ops::Scale(context, x, 1.0);
    const Tensor held = hold ? qkv.value() : Tensor();
    const Variable mixed =
        ops::SelfAttention(context, qkv, Tensor::FromVector<int64_t>({0, 4, 9}),
                           Tensor::FromVector<int64_t>({0, 1, 2, 3, 5, 6, 7, 8, 9}),
                           {.heads = 2, .max_length = 5, .scale = 0.5, .operation = 3});
    qkv = Variable();
    Backward(context, {{mixed, RandomTensor({9, 8}, 2, DType::F32)}});
    gradients[hold] = x.leaf().gradient();
    if (hold) {
      EXPECT_EQ(HashTensor("", 0, held), HashTensor("", 0, x.value()));
    }
  }
  EXPECT_EQ(HashTensor("", 0, gradients[0]), HashTensor("", 0, gradients[1]));
}

TEST(LayersTest, AttentionDropsProbabilitiesInTrainingOnly) {
  ParameterSet parameters(3, DType::F64);
  const nn::SelfAttention attention(parameters, "attention",
                                    {.dim = 4, .heads = 2, .dropout = 0.5f});
  const nn::PackedRows rows{Tensor::FromVector<int64_t>({0, 3}),
                            Tensor::FromVector<int64_t>({0, 1, 2}),
                            Tensor::FromVector<int64_t>({0, 1, 2}), 4};
  const Variable x = Leaf({3, 4}, 12);
  StepFixture fixture;
  Context training(fixture.Options()), evaluation(fixture.Options(1, /*training=*/false));
  Context again(fixture.Options(2, /*training=*/false));
  const Tensor kept = attention.Forward(evaluation, x, rows).value();
  EXPECT_NE(HashTensor("", 0, attention.Forward(training, x, rows).value()),
            HashTensor("", 0, kept));
  EXPECT_EQ(HashTensor("", 0, attention.Forward(again, x, rows).value()), HashTensor("", 0, kept));
}

TEST(LayersGradientTest, RmsNormLayer) {
  ParameterSet parameters(3, DType::F64);
  const nn::Norm norm(parameters, "norm", 4, {.kind = nn::NormKind::RMS, .epsilon = 1e-5});
  const Variable x = Leaf({3, 4}, 12);
  CheckGradients([&](Context& c) { return norm.Forward(c, x); },
                 {x, parameters.all()[0]->variable});
}

TEST(ParameterSetTest, UniformFillsItsRangeEvenly) {
  ParameterSet parameters(1, DType::F64);
  const Tensor values = parameters.Uniform("w", Shape{100, 100}, 0.5).value();
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < values.num_elements(); ++i) {
    ASSERT_LT(std::abs(values.At(i)), 0.5);
    sum += values.At(i);
    squares += values.At(i) * values.At(i);
  }
  EXPECT_NEAR(sum / 1e4, 0, 0.01);              // sd 0.0029
  EXPECT_NEAR(squares / 1e4, 0.25 / 3, 0.003);  // sd 0.0007
  EXPECT_NE(HashTensor("w", 0, values),
            HashTensor("w", 0, parameters.Uniform("v", Shape{100, 100}, 0.5).value()));
}

TEST(ParameterSetTest, InitialValuesDependOnSeedNameAndElementOnly) {
  ParameterSet a(1, DType::F32), b(1, DType::F32), other_seed(2, DType::F32);
  b.Constant("first", Shape{3}, 0);
  const Variable in_a = a.Normal("w", Shape{4, 2}, 0.1), in_b = b.Normal("w", Shape{4, 2}, 0.1);
  const Variable in_other = other_seed.Normal("w", Shape{4, 2}, 0.1);
  EXPECT_EQ(HashTensor("w", 0, in_a.value()), HashTensor("w", 0, in_b.value()));
  EXPECT_NE(HashTensor("w", 0, in_a.value()), HashTensor("w", 0, in_other.value()));
  EXPECT_NE(HashTensor("w", 0, in_a.value()), HashTensor("w", 1, in_a.value()));
}

TEST(ParameterSetTest, ShadowsAreRoundedMatricesAndFollowWhenRefreshed) {
  StepFixture fixture;
  ParameterSet parameters(1, DType::F32);
  const Variable matrix = parameters.Normal("w", Shape{3, 5}, 1),
                 bias = parameters.Constant("b", Shape{5}, 1);
  parameters.MakeShadows(fixture.stream());
  EXPECT_FALSE(bias.leaf().shadow().defined());
  matrix.value().Set(4, 1.01);
  parameters.RefreshShadows(fixture.stream());
  const Tensor& shadow = matrix.leaf().shadow();
  ASSERT_TRUE(shadow.shape() == matrix.shape());
  for (int64_t i = 0; i < shadow.num_elements(); ++i) {
    EXPECT_EQ(shadow.data<BFloat16>()[i].bits, ToBFloat16(matrix.value().data<float>()[i]).bits);
  }
}

}  // namespace
}  // namespace tandem
