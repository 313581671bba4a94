#include "trainer/autograd/ops/ops.h"

#include <gtest/gtest.h>

#include "tests/trainer/gradient_check.h"
#include "trainer/nn/layers.h"

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

TEST(OpsGradientTest, LinearKeepsLeadingExtents) {
  const Variable x = Leaf({2, 3, 4}, 1), w = Leaf({4, 2}, 2, "w"), b = Leaf({2}, 3, "b");
  CheckGradients([&](Context& c) { return ops::Linear(c, x, w, b); }, {x, w, b});
}

TEST(OpsGradientTest, MatMulTransposed) {
  const Variable a = Leaf({3, 4}, 1, "a"), b = Leaf({5, 4}, 2, "b");
  CheckGradients([&](Context& c) { return ops::MatMulTransposed(c, a, b); }, {a, b});
}

TEST(OpsGradientTest, AddScaleReshapeConcat) {
  const Variable a = Leaf({3, 2}, 1, "a"), b = Leaf({3, 2}, 2, "b"), d = Leaf({3, 1}, 3, "d");
  CheckGradients([&](Context& c) { return ops::Add(c, a, ops::Scale(c, b, -2.5)); }, {a, b});
  CheckGradients([&](Context& c) { return ops::ConcatColumns(c, d, a); }, {a, d});
  CheckGradients([&](Context& c) { return ops::Reshape(c, a, Shape{2, 3}); }, {a});
}

TEST(OpsGradientTest, Activations) {
  for (auto activation : {kernels::Activation::GELU, kernels::Activation::GELU_TANH, kernels::Activation::RELU,
                          kernels::Activation::SILU}) {
    const Variable x = Leaf({3, 5}, 4);
    CheckGradients([&](Context& c) { return ops::Activate(c, x, activation); }, {x});
  }
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
  const Variable x = Leaf({4, 6}, 1, "x"), gamma = Leaf({6}, 2, "gamma"), beta = Leaf({6}, 3, "beta");
  CheckGradients([&](Context& c) { return ops::LayerNorm(c, x, gamma, beta, 1e-5); }, {x, gamma, beta});
  CheckGradients([&](Context& c) { return ops::RmsNorm(c, x, gamma, 1e-5); }, {x, gamma});
}

TEST(OpsGradientTest, DropoutMaskIsTheSameInBothDirections) {
  const Variable x = Leaf({5, 6}, 1);
  const Tensor rows = Tensor::FromVector<int64_t>({0, 1, 7, 8, 40});
  CheckGradients([&](Context& c) { return ops::Dropout(c, x, rows, 0.4f, 11); }, {x});
}

TEST(OpsGradientTest, SelfAttentionOverUnevenSequences) {
  const Tensor offsets = Tensor::FromVector<int64_t>({0, 3, 3, 4, 9});
  const Tensor rows = Tensor::FromVector<int64_t>({2, 3, 4, 14, 15, 16, 17, 18, 19});
  for (const bool causal : {true, false}) {
    for (const float dropout : {0.0f, 0.3f}) {
      const Variable qkv = Leaf({9, 3 * 4}, 8, "qkv");
      const ops::AttentionOptions options{
          .heads = 2, .max_length = 5, .causal = causal, .scale = 0.7, .dropout = dropout, .operation = 3};
      CheckGradients([&](Context& c) { return ops::SelfAttention(c, qkv, offsets, rows, options); }, {qkv});
    }
  }
}

TEST(OpsGradientTest, Losses) {
  const Variable logits = Leaf({5, 4}, 9, "logits"), scores = Leaf({6}, 10, "scores");
  const Tensor target = Tensor::FromVector<int64_t>({0, 3, 1, 1, 2});
  CheckGradients([&](Context& c) { return ops::CrossEntropySum(c, logits, target); }, {logits});
  for (const double label : {0.0, 1.0}) {
    CheckGradients([&](Context& c) { return ops::BinaryCrossEntropySum(c, scores, label); }, {scores});
  }
}

TEST(LayersGradientTest, PostNormBlockWithDropout) {
  ParameterSet parameters(3, DType::F64);
  const nn::LinearOptions linear{.stddev = 0.5};
  const nn::BlockOptions options{.dim = 4, .heads = 2, .ffn_dim = 6, .dropout = 0.3f, .norm_epsilon = 1e-5,
                                 .qkv = linear, .up = linear, .residual = linear};
  const nn::PostNormBlock block(parameters, "block", options);
  const nn::PackedRows rows{Tensor::FromVector<int64_t>({0, 2, 5}), Tensor::FromVector<int64_t>({2, 3, 1, 2, 3}),
                            Tensor::FromVector<int64_t>({2, 3, 5, 6, 7}), 4};
  const Variable x = Leaf({5, 4}, 12);
  std::vector<Variable> leaves{x};
  for (const auto& parameter : parameters.all()) leaves.push_back(parameter->variable);
  CheckGradients([&](Context& c) { return block.Forward(c, x, rows); }, leaves, 1e-5);
}

TEST(LayersTest, AttentionDropsProbabilitiesInTrainingOnly) {
  ParameterSet parameters(3, DType::F64);
  const nn::SelfAttention attention(parameters, "attention", {.dim = 4, .heads = 2, .dropout = 0.5f});
  const nn::PackedRows rows{Tensor::FromVector<int64_t>({0, 3}), Tensor::FromVector<int64_t>({0, 1, 2}),
                            Tensor::FromVector<int64_t>({0, 1, 2}), 4};
  const Variable x = Leaf({3, 4}, 12);
  StepFixture fixture;
  Context training(fixture.Options()), evaluation(fixture.Options(1, /*training=*/false));
  Context again(fixture.Options(2, /*training=*/false));
  const Tensor kept = attention.Forward(evaluation, x, rows).value();
  EXPECT_NE(HashTensor("", 0, attention.Forward(training, x, rows).value()), HashTensor("", 0, kept));
  EXPECT_EQ(HashTensor("", 0, attention.Forward(again, x, rows).value()), HashTensor("", 0, kept));
}

TEST(LayersGradientTest, RmsNormLayer) {
  ParameterSet parameters(3, DType::F64);
  const nn::RmsNorm norm(parameters, "norm", 4, 1e-5);
  const Variable x = Leaf({3, 4}, 12);
  CheckGradients([&](Context& c) { return norm.Forward(c, x); }, {x, parameters.all()[0]->variable});
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
  EXPECT_NEAR(sum / 1e4, 0, 0.01);               // sd 0.0029
  EXPECT_NEAR(squares / 1e4, 0.25 / 3, 0.003);   // sd 0.0007
  EXPECT_NE(HashTensor("w", 0, values), HashTensor("w", 0, parameters.Uniform("v", Shape{100, 100}, 0.5).value()));
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
  const Variable matrix = parameters.Normal("w", Shape{3, 5}, 1), bias = parameters.Constant("b", Shape{5}, 1);
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
