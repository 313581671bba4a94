#include "trainer/models/rec_llm.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "tests/trainer/autograd/gradient_check.h"
#include "trainer/models/sequence_input.h"

namespace tandem {
namespace {

using models::ItemSet;
using models::RecLlm;
using models::RecLlmInput;
using models::RecLlmOptions;
using ::tandem::testing::CheckGradients;
using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

constexpr int64_t kSymbols = 5, kMaxLength = 8, kDim = 4, kItemDim = 3;

RecLlmOptions Small() {
  return {.vocabulary_size = kSymbols,
          .max_length = kMaxLength,
          .layers = 2,
          .heads = 2,
          .dim = kDim,
          .ffn_dim = 6,
          .dropout = 0.2f,
          .init_stddev = 0.4,
          .item_dim = kItemDim,
          .has_tower = true};
}

Tensor Places(std::vector<int64_t> values) { return Tensor::FromVector(values); }

// Three items: the first has a row and two words, the second only a word, the third only a row.
ItemSet Items(DType dtype = DType::F64) {
  const Tensor scale = Tensor::Empty(Shape{3}, dtype);
  const std::vector<double> roots{std::sqrt(2.0), 1, 0};
  for (int64_t i = 0; i < 3; ++i) scale.Set(i, roots[i]);
  return {.size = 3,
          .with_row = Places({0, 2}),
          .word_offsets = Places({0, 2, 3, 3}),
          .words = Places({3, 0, 3}),
          .word_scale = scale};
}

// Two streams: "1 2 item0, 3 4 item1" and "item2, 0 item0".
RecLlmInput Input() {
  return {.rows = {.offsets = Places({0, 6, 9}),
                   .positions = Places({2, 3, 4, 5, 6, 7, 5, 6, 7}),
                   .row_index = Places({2, 3, 4, 5, 6, 7, 13, 14, 15}),
                   .max_length = kMaxLength},
          .inputs = Places({1, 2, kSymbols, 3, 4, kSymbols + 1, kSymbols + 2, 0, kSymbols}),
          .item_places = Places({2, 5, 6, 8}),
          .item_targets = Places({1, 2, 0, 1}),
          .text_places = Places({0, 3}),
          .text_targets = Places({2, 4})};
}

struct Leaves {
  Variable rows = Variable::Leaf(RandomTensor({2, kItemDim}, 7, DType::F64, 0.5), "rows");
  Variable words = Variable::Leaf(RandomTensor({4, kDim}, 8, DType::F64, 0.5), "words");
  Variable symbols = Variable::Leaf(RandomTensor({kSymbols, kDim}, 9, DType::F64, 0.5), "symbols");
};

TEST(RecLlmTest, GradientsOfEveryParameterAndOfAllRowsThroughBothLosses) {
  ParameterSet parameters(5, DType::F64);
  const RecLlm model(Small(), parameters);
  const Leaves from;
  std::vector<Variable> leaves{from.rows, from.words, from.symbols};
  for (const auto& parameter : parameters.all()) leaves.push_back(parameter->variable);
  CheckGradients(
      [&](Context& c) {
        const Variable vectors = model.ItemVectors(c, from.rows, from.words, Items());
        const Variable hidden = model.Encode(c, from.symbols, vectors, Input());
        return ops::Add(c, model.ItemLossSum(c, hidden, vectors, Input()),
                        ops::Scale(c, model.TextLossSum(c, hidden, Input()), 0.3));
      },
      leaves, 2e-5);
}

TEST(RecLlmTest, GradientsWithoutTowerAndWithoutText) {
  ParameterSet parameters(5, DType::F64);
  RecLlmOptions options = Small();
  options.vocabulary_size = 0;
  options.has_tower = false;
  const RecLlm model(options, parameters);
  RecLlmInput input = Input();
  input.rows = {.offsets = Places({0, 2, 4}),
                .positions = Places({6, 7, 6, 7}),
                .row_index = Places({6, 7, 14, 15}),
                .max_length = kMaxLength};
  input.inputs = Places({0, 1, 2, 0});
  input.item_places = Places({0, 1, 2, 3});
  std::vector<Variable> leaves{Leaves().rows};
  for (const auto& parameter : parameters.all()) leaves.push_back(parameter->variable);
  CheckGradients(
      [&](Context& c) {
        const Variable vectors = model.ItemVectors(c, leaves[0], Variable(), Items());
        const Variable hidden = model.Encode(c, Variable(), vectors, input);
        return model.ItemLossSum(c, hidden, vectors, input);
      },
      leaves, 2e-5);
}

// In double loops, from the words of rec_llm.h.
TEST(RecLlmTest, AnItemIsItsProjectedRowAndWhatTheTowerMakesOfItsWords) {
  ParameterSet parameters(5, DType::F64);
  const RecLlm model(Small(), parameters);
  const Leaves from;
  const auto value = [&](const std::string& name) {
    for (const auto& parameter : parameters.all()) {
      if (parameter->name == name) return parameter->variable.value();
    }
    ADD_FAILURE() << name;
    return Tensor();
  };
  const auto linear = [&](const std::vector<double>& x, const std::string& name, bool bias) {
    const Tensor weight = value(name + ".weight");
    std::vector<double> y(weight.dim(1), 0);
    for (int64_t o = 0; o < weight.dim(1); ++o) {
      if (bias) y[o] = value(name + ".bias").At(o);
      for (size_t i = 0; i < x.size(); ++i)
        y[o] += x[i] * weight.At(static_cast<int64_t>(i) * weight.dim(1) + o);
    }
    return y;
  };
  StepFixture fixture;
  Context context(fixture.Options());
  const Tensor vectors = model.ItemVectors(context, from.rows, from.words, Items()).value();
  const std::vector<std::vector<int64_t>> words{{3, 0}, {3}, {}};
  const std::vector<int64_t> row_of{0, -1, 1};
  for (int64_t item = 0; item < 3; ++item) {
    std::vector<double> sum(kDim, 0), row(kItemDim, 0);
    for (const int64_t word : words[item]) {
      for (int64_t d = 0; d < kDim; ++d)
        sum[d] += from.words.value().At(word * kDim + d) /
                  std::sqrt(static_cast<double>(words[item].size()));
    }
    std::vector<double> hidden = linear(sum, "tower.up", true);
    for (double& h : hidden) h *= 0.5 * std::erfc(-h / std::sqrt(2.0));
    const std::vector<double> tower = linear(hidden, "tower.down", true);
    for (int64_t d = 0; d < kItemDim && row_of[item] >= 0; ++d)
      row[d] = from.rows.value().At(row_of[item] * kItemDim + d);
    const std::vector<double> projected = linear(row, "items.projection", false);
    for (int64_t d = 0; d < kDim; ++d)
      EXPECT_NEAR(vectors.At(item * kDim + d), sum[d] + tower[d] + projected[d], 1e-12);
  }
}

TEST(RecLlmTest, ItemsOfWhichNoneHasARowAreTheirTitles) {
  ParameterSet parameters(5, DType::F64);
  const RecLlm model(Small(), parameters);
  const Leaves from;
  ItemSet without = Items();
  without.with_row = Places({});
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable none = Variable::Constant(RandomTensor({0, kItemDim}, 1, DType::F64));
  const Tensor with = model.ItemVectors(context, from.rows, from.words, Items()).value(),
               alone = model.ItemVectors(context, none, from.words, without).value();
  for (int64_t d = 0; d < kDim; ++d) {
    EXPECT_EQ(alone.At(kDim + d), with.At(kDim + d)) << "the second item has no row";
    EXPECT_NE(alone.At(d), with.At(d));
  }
}

TEST(RecLlmTest, WhatComesLaterInTheStreamDoesNotChangeAnItemPlacesLogits) {
  ParameterSet parameters(5, DType::F64);
  const RecLlm model(Small(), parameters);
  const Leaves from;
  StepFixture fixture;
  Context::Options options = fixture.Options();
  options.training = false;
  Context context(options);
  const Variable vectors = model.ItemVectors(context, from.rows, from.words, Items());
  RecLlmInput changed = Input();
  changed.inputs = Places({1, 2, kSymbols, 4, 0, kSymbols + 1, kSymbols + 2, 0, kSymbols});
  const Tensor before = model.Encode(context, from.symbols, vectors, Input()).value(),
               after = model.Encode(context, from.symbols, vectors, changed).value();
  for (int64_t place = 0; place < 9; ++place) {
    for (int64_t d = 0; d < kDim; ++d) {
      const int64_t i = place * kDim + d;
      if (place <= 2 || place >= 6)
        EXPECT_EQ(before.At(i), after.At(i)) << "place " << place;
      else
        EXPECT_NE(before.At(i), after.At(i)) << "place " << place;
    }
  }
}

// Each negative once and expected once: the sampled softmax is the full one.
TEST(RecLlmTest, SampledSoftmaxWithEveryItemAsANegativeIsTheFullSoftmax) {
  ParameterSet parameters(5, DType::F64);
  const RecLlm model(Small(), parameters);
  const Leaves from;
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable vectors = model.ItemVectors(context, from.rows, from.words, Items());
  const Variable hidden = model.Encode(context, from.symbols, vectors, Input());
  RecLlmInput sampled = Input();
  sampled.negatives = Places({2, 0, 1});
  sampled.correction = Tensor::Empty(Shape{3, 1}, DType::F64);
  for (int64_t i = 0; i < 3; ++i) sampled.correction.Set(i, 0);
  EXPECT_NEAR(model.ItemLossSum(context, hidden, vectors, sampled).value().At(0),
              model.ItemLossSum(context, hidden, vectors, Input()).value().At(0), 1e-9);
  // A negative drawn twice as often as expected once counts half each time.
  sampled.negatives = Places({2, 0, 1, 1});
  sampled.correction = Tensor::Empty(Shape{4, 1}, DType::F64);
  for (int64_t i = 0; i < 4; ++i) sampled.correction.Set(i, i < 2 ? 0 : -std::log(2.0));
  EXPECT_NEAR(model.ItemLossSum(context, hidden, vectors, sampled).value().At(0),
              model.ItemLossSum(context, hidden, vectors, Input()).value().At(0), 1e-9);
}

TEST(RecLlmTest, GradientsOfTheSampledSoftmax) {
  ParameterSet parameters(5, DType::F64);
  const RecLlm model(Small(), parameters);
  const Leaves from;
  RecLlmInput input = Input();
  input.negatives = Places({2, 0});
  input.correction = Tensor::Empty(Shape{2, 1}, DType::F64);
  input.correction.Set(0, 0.3);
  input.correction.Set(1, -0.7);
  CheckGradients(
      [&](Context& c) {
        const Variable vectors = model.ItemVectors(c, from.rows, from.words, Items());
        const Variable hidden = model.Encode(c, from.symbols, vectors, input);
        return model.ItemLossSum(c, hidden, vectors, input);
      },
      {from.rows, from.words, from.symbols}, 2e-5);
}

TEST(RecLlmTest, WithAllScoresEqualTheLossIsThatOfChance) {
  ParameterSet parameters(5, DType::F64);
  const RecLlm model(Small(), parameters);
  const Leaves from;
  StepFixture fixture;
  Context context(fixture.Options());
  const Tensor zero = Tensor::Empty(Shape{3, kDim}, DType::F64);
  for (int64_t i = 0; i < zero.num_elements(); ++i) zero.Set(i, 0);
  const Variable vectors = Variable::Constant(zero);
  const Variable hidden = model.Encode(context, from.symbols, vectors, Input());
  EXPECT_NEAR(model.ItemLossSum(context, hidden, vectors, Input()).value().At(0), 4 * std::log(3.0),
              1e-12);
}

}  // namespace
}  // namespace tandem
