#include "trainer/models/gpt.h"

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>

#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/models/plain_layers.h"

namespace tandem {
namespace {

using models::Gpt;
using models::GptInput;
using models::GptOptions;
using ::tandem::testing::CheckGradients;
using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

// The two published recipes with 65 symbols.
GptOptions MiniGpt() {
  return {.vocabulary_size = 65,
          .max_length = 32,
          .layers = 4,
          .heads = 4,
          .dim = 64,
          .ffn_dim = 256,
          .activation = kernels::Activation::RELU,
          .norm = {.epsilon = 1e-5, .bias = true},
          .linear_bias = true,
          .attention_scale = 0.125,
          .init = nn::Init::UNIFORM_FAN_IN,
          .embedding_stddev = 1};
}
GptOptions NanoGpt() {
  return {.vocabulary_size = 65,
          .max_length = 64,
          .layers = 4,
          .heads = 4,
          .dim = 128,
          .ffn_dim = 512,
          .tied_embeddings = true};
}

// The two recipes, small enough to compute by hand-written loops.
constexpr int64_t kSymbols = 7, kMaxLength = 6, kDim = 4, kHeads = 2;
GptOptions Small(GptOptions options) {
  options.vocabulary_size = kSymbols;
  options.max_length = kMaxLength;
  options.layers = 2;
  options.heads = kHeads;
  options.dim = kDim;
  options.ffn_dim = 6;
  options.init_stddev = 0.4;
  if (options.attention_scale > 0) options.attention_scale = 0.5;
  return options;
}

// Three windows of 6, 2 and 4 symbols, packed.
GptInput MakeInput() {
  const std::vector<int64_t> lengths{6, 2, 4};
  std::vector<int64_t> offsets{0}, positions, row_index, inputs, targets;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int64_t i = 0; i < lengths[s]; ++i) {
      positions.push_back(i);
      row_index.push_back(static_cast<int64_t>(s) * kMaxLength + i);
      inputs.push_back((i * 3 + static_cast<int64_t>(s) * 2) % kSymbols);
      targets.push_back((i * 5 + 1) % kSymbols);
    }
    offsets.push_back(offsets.back() + lengths[s]);
  }
  return {.rows = {.offsets = Tensor::FromVector(offsets),
                   .positions = Tensor::FromVector(positions),
                   .row_index = Tensor::FromVector(row_index),
                   .max_length = kMaxLength},
          .inputs = Tensor::FromVector(inputs),
          .targets = Tensor::FromVector(targets)};
}

std::map<std::string, Tensor> ByName(const ParameterSet& parameters) {
  std::map<std::string, Tensor> tensors;
  for (const auto& parameter : parameters.all())
    tensors[parameter->name] = parameter->variable.value();
  return tensors;
}

// Gives every parameter another random value, so that biases and norms matter.
void Randomise(const ParameterSet& parameters, double scale) {
  uint64_t seed = 100;
  for (const auto& parameter : parameters.all()) {
    const Tensor random = RandomTensor(parameter->shape(), ++seed, DType::F64, scale);
    for (int64_t i = 0; i < random.num_elements(); ++i) {
      parameter->variable.value().Set(i, parameter->variable.value().At(i) + random.At(i));
    }
  }
}

TEST(GptTest, MiniGptHas209729Parameters) {
  ParameterSet parameters(1, DType::F32);
  const Gpt gpt(MiniGpt(), parameters);
  EXPECT_EQ(parameters.num_elements(), 209729);
}

TEST(GptTest, NanoGptHas804096Parameters) {
  ParameterSet parameters(1, DType::F32);
  const Gpt gpt(NanoGpt(), parameters);
  EXPECT_EQ(parameters.num_elements(), 804096);
}

TEST(GptTest, TokenRowsFromOutsideAreNoParameter) {
  ParameterSet parameters(1, DType::F32);
  GptOptions options = NanoGpt();
  options.token_rows_outside = true;
  const Gpt gpt(options, parameters);
  EXPECT_EQ(parameters.num_elements(), 804096 - 65 * 128);
  EXPECT_EQ(ByName(parameters).count("embedding.tokens"), 0u);
}

double StandardDeviation(const Tensor& tensor) {
  double sum = 0;
  for (int64_t i = 0; i < tensor.num_elements(); ++i) sum += tensor.At(i) * tensor.At(i);
  return std::sqrt(sum / static_cast<double>(tensor.num_elements()));
}

TEST(GptTest, MiniGptStartsUniformBelowTheInverseRootOfTheInputs) {
  ParameterSet parameters(1, DType::F32);
  const Gpt gpt(MiniGpt(), parameters);
  const std::map<std::string, Tensor> values = ByName(parameters);
  const auto expect_uniform = [&](const std::string& name, double bound, double tolerance) {
    const Tensor& tensor = values.at(name);
    double largest = 0;
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
      largest = std::max(largest, std::abs(tensor.At(i)));
    EXPECT_LT(largest, bound) << name;
    EXPECT_GT(largest, 0.9 * bound) << name;
    EXPECT_NEAR(StandardDeviation(tensor), bound / std::sqrt(3.0), tolerance * bound) << name;
  };
  expect_uniform("blocks.0.attention.qkv.weight", 1.0 / 8, 0.01);
  expect_uniform("blocks.3.ffn.up.weight", 1.0 / 8, 0.01);
  expect_uniform("blocks.3.ffn.down.weight", 1.0 / 16, 0.01);
  expect_uniform("blocks.3.ffn.down.bias", 1.0 / 16, 0.15);
  expect_uniform("head.weight", 1.0 / 8, 0.01);
  expect_uniform("head.bias", 1.0 / 8, 0.15);
  EXPECT_NEAR(StandardDeviation(values.at("embedding.tokens")), 1, 0.05);
  EXPECT_NEAR(StandardDeviation(values.at("embedding.positions")), 1, 0.05);
  EXPECT_EQ(values.count("blocks.0.attention.qkv.bias"), 0u);
}

TEST(GptTest, NanoGptStartsNormalWithScaledResidualProjections) {
  ParameterSet parameters(1, DType::F32);
  const Gpt gpt(NanoGpt(), parameters);
  const std::map<std::string, Tensor> values = ByName(parameters);
  for (const char* name : {"embedding.tokens", "embedding.positions",
                           "blocks.1.attention.qkv.weight", "blocks.2.ffn.up.weight"}) {
    EXPECT_NEAR(StandardDeviation(values.at(name)), 0.02, 0.001) << name;
  }
  for (const char* name : {"blocks.0.attention.output.weight", "blocks.3.ffn.down.weight"}) {
    EXPECT_NEAR(StandardDeviation(values.at(name)), 0.02 / std::sqrt(8.0), 0.0004) << name;
  }
  EXPECT_EQ(values.at("final_norm.gamma").At(5), 1);
  for (const auto& [name, tensor] : values) {
    EXPECT_EQ(name.find(".bias"), std::string::npos) << name;
    EXPECT_EQ(name.find(".beta"), std::string::npos) << name;
  }
}

TEST(GptTest, DecayIsForMatrices) {
  ParameterSet parameters(1, DType::F32);
  const Gpt gpt(MiniGpt(), parameters);
  for (const auto& parameter : parameters.all()) {
    EXPECT_EQ(parameter->decay, parameter->shape().num_dims() >= 2) << parameter->name;
  }
}

TEST(GptTest, GradientsOfEveryParameterInBothRecipes) {
  for (GptOptions options : {MiniGpt(), NanoGpt()}) {
    options.dropout = 0.2f;
    ParameterSet parameters(5, DType::F64);
    const Gpt gpt(Small(options), parameters);
    Randomise(parameters, 0.2);
    const GptInput input = MakeInput();
    std::vector<Variable> leaves;
    for (const auto& parameter : parameters.all()) leaves.push_back(parameter->variable);
    CheckGradients([&](Context& c) { return gpt.LossSum(c, Variable(), input); }, leaves, 2e-5);
  }
}

TEST(GptTest, GradientsOfTokenRowsFromOutside) {
  for (const GptOptions& recipe : {MiniGpt(), NanoGpt()}) {
    GptOptions options = Small(recipe);
    options.token_rows_outside = true;
    ParameterSet parameters(5, DType::F64);
    const Gpt gpt(options, parameters);
    const GptInput input = MakeInput();
    const Variable tokens =
        Variable::Leaf(RandomTensor(Shape{kSymbols, kDim}, 7, DType::F64, 0.5), "tokens");
    CheckGradients([&](Context& c) { return gpt.LossSum(c, tokens, input); }, {tokens}, 2e-5);
  }
}

// An independent forward pass in double precision: one window at a time, with full attention
// matrices.
// Follows the recipes' text and shares no code with the kernels.
class Reference : private PlainLayers {
 public:
  using PlainLayers::Matrix;

  Reference(const GptOptions& options, const ParameterSet& parameters)
      : PlainLayers(parameters, 1e-5), options_(options) {}

  // Logits after each symbol.
  Matrix Logits(const std::vector<int64_t>& symbols) const {
    Matrix x(symbols.size(), std::vector<double>(kDim));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t f = 0; f < kDim; ++f) {
        x[t][f] = At("embedding.tokens", symbols[t] * kDim + f) +
                  At("embedding.positions", static_cast<int64_t>(t) * kDim + f);
      }
    }
    for (const std::string block : {"blocks.0", "blocks.1"}) {
      const Matrix attended =
          Attend(Project(Norm(x, block + ".attention_norm"), block + ".attention.qkv"));
      x = Plus(x, Project(attended, block + ".attention.output"));
      Matrix inner = Project(Norm(x, block + ".ffn_norm"), block + ".ffn.up");
      const bool relu = options_.activation == kernels::Activation::RELU;
      for (auto& row : inner) {
        for (double& v : row)
          v = relu ? std::max(v, 0.0) : v * 0.5 * std::erfc(-v / std::sqrt(2.0));
      }
      x = Plus(x, Project(inner, block + ".ffn.down"));
    }
    x = Norm(x, "final_norm");
    if (!options_.tied_embeddings) return Project(x, "head");
    return ProjectTied(x, "embedding.tokens");
  }

 private:
  Matrix Attend(const Matrix& qkv) const {
    constexpr int64_t kWidth = kDim / kHeads;
    // Mini GPT divides by the root of the whole width (4), nanoGPT by the root of a head's width
    // (2).
    const double scale = options_.attention_scale > 0 ? 1 / std::sqrt(4.0) : 1 / std::sqrt(2.0);
    Matrix y(qkv.size(), std::vector<double>(kDim, 0));
    for (int64_t head = 0; head < kHeads; ++head) {
      for (size_t t = 0; t < qkv.size(); ++t) {
        std::vector<double> weight(t + 1, 0);
        double sum = 0;
        for (size_t j = 0; j <= t; ++j) {
          double score = 0;
          for (int64_t f = 0; f < kWidth; ++f)
            score += qkv[t][head * kWidth + f] * qkv[j][kDim + head * kWidth + f];
          sum += weight[j] = std::exp(score * scale);
        }
        for (size_t j = 0; j <= t; ++j) {
          for (int64_t f = 0; f < kWidth; ++f) {
            y[t][head * kWidth + f] += weight[j] / sum * qkv[j][2 * kDim + head * kWidth + f];
          }
        }
      }
    }
    return y;
  }

  GptOptions options_;
};

TEST(GptTest, LogitsAndLossesAgreeWithAnIndependentDoubleForwardInBothRecipes) {
  for (const GptOptions& recipe : {MiniGpt(), NanoGpt()}) {
    ParameterSet parameters(5, DType::F32);
    const GptOptions options = Small(recipe);
    const Gpt gpt(options, parameters);
    Randomise(parameters, 0.3);
    const GptInput input = MakeInput();
    StepFixture fixture;
    Context context(fixture.Options(1, /*training=*/false));
    const Tensor logits =
        gpt.Logits(context, Variable(), gpt.Encode(context, Variable(), input)).value();
    const Tensor losses = gpt.Losses(context, Variable(), input);
    const double loss_sum = gpt.LossSum(context, Variable(), input).value().At(0);
    const Reference reference(options, parameters);
    double expected_sum = 0;
    for (int64_t s = 0; s < 3; ++s) {
      const int64_t begin = input.rows.offsets.data<int64_t>()[s],
                    end = input.rows.offsets.data<int64_t>()[s + 1];
      const int64_t* symbols = input.inputs.data<int64_t>();
      const auto expected = reference.Logits({symbols + begin, symbols + end});
      for (int64_t t = begin; t < end; ++t) {
        double exp_sum = 0;
        for (int64_t v = 0; v < kSymbols; ++v) {
          EXPECT_NEAR(logits.At(t * kSymbols + v), expected[t - begin][v], 1e-5)
              << "token " << t << " symbol " << v;
          exp_sum += std::exp(expected[t - begin][v]);
        }
        const double loss =
            std::log(exp_sum) - expected[t - begin][input.targets.data<int64_t>()[t]];
        EXPECT_NEAR(losses.At(t), loss, 1e-5);
        expected_sum += loss;
      }
    }
    EXPECT_NEAR(loss_sum, expected_sum, 1e-4);
  }
}

TEST(GptTest, RowsFromOutsideGiveTheLossOfTheSameRowsInside) {
  ParameterSet inside_parameters(5, DType::F32), outside_parameters(5, DType::F32);
  GptOptions options = Small(MiniGpt());
  const Gpt inside(options, inside_parameters);
  options.token_rows_outside = true;
  const Gpt outside(options, outside_parameters);
  GptInput input = MakeInput();
  StepFixture fixture;
  Context context(fixture.Options());
  const double expected = inside.LossSum(context, Variable(), input).value().At(0);
  // An untied model needs only the rows of its inputs, in any order. Here the table is upside down.
  const Tensor table = ByName(inside_parameters).at("embedding.tokens");
  const Tensor reversed = Tensor::Empty(table.shape(), DType::F32);
  for (int64_t i = 0; i < kSymbols; ++i) {
    for (int64_t f = 0; f < kDim; ++f)
      reversed.Set(i * kDim + f, table.At((kSymbols - 1 - i) * kDim + f));
  }
  int64_t* places = input.inputs.data<int64_t>();
  for (int64_t t = 0; t < input.inputs.num_elements(); ++t) places[t] = kSymbols - 1 - places[t];
  EXPECT_EQ(outside.LossSum(context, Variable::Leaf(reversed, "tokens"), input).value().At(0),
            expected);
}

TEST(GptTest, DropoutFollowsTheEmbeddingAndBothHalvesOfEachBlock) {
  ParameterSet parameters(5, DType::F32);
  GptOptions options = Small(NanoGpt());
  options.dropout = 0.5f;
  const Gpt gpt(options, parameters);
  StepFixture fixture;
  Context context(fixture.Options());
  std::set<const Node*> seen;
  const Variable loss = gpt.LossSum(context, Variable(), MakeInput());
  std::vector<const Node*> open{loss.node().get()};
  std::multiset<std::string> dropped;  // what each dropout is applied to
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (node->name() == "dropout") dropped.insert(node->inputs()[0]->name());
    if (node->name() == "dropout_add_layer_norm") dropped.insert(node->inputs()[1]->name());
    for (const auto& input : node->inputs()) open.push_back(input.get());
  }
  EXPECT_EQ(dropped, (std::multiset<std::string>{"add", "linear", "linear", "linear",
                                                 "linear"}));  // two blocks
}

TEST(GptTest, DropoutFollowsThePlaceInTheGlobalBatch) {
  ParameterSet parameters(5, DType::F64);
  GptOptions options = Small(NanoGpt());
  options.dropout = 0.5f;
  const Gpt gpt(options, parameters);
  const GptInput whole = MakeInput();
  StepFixture fixture;
  Context context(fixture.Options());
  const double together = gpt.LossSum(context, Variable(), whole).value().At(0);
  double apart = 0;
  for (int64_t s = 0; s < 3; ++s) {
    const int64_t begin = whole.rows.offsets.data<int64_t>()[s],
                  end = whole.rows.offsets.data<int64_t>()[s + 1];
    const GptInput one{.rows = {Tensor::FromVector<int64_t>({0, end - begin}),
                                whole.rows.positions.Rows(begin, end),
                                whole.rows.row_index.Rows(begin, end), kMaxLength},
                       .inputs = whole.inputs.Rows(begin, end),
                       .targets = whole.targets.Rows(begin, end)};
    apart += gpt.LossSum(context, Variable(), one).value().At(0);
  }
  EXPECT_NEAR(together, apart, 1e-12);
  Context evaluation(fixture.Options(1, /*training=*/false));
  EXPECT_GT(std::abs(gpt.LossSum(evaluation, Variable(), whole).value().At(0) - together), 1e-3);
}

TEST(GptTest, ABatchWithoutTokensHasZeroLossAndZeroGradients) {
  ParameterSet parameters(5, DType::F32);
  const Gpt gpt(Small(MiniGpt()), parameters);
  const Tensor none = Tensor::Empty(Shape{0}, DType::I64);
  const GptInput input{.rows = {Tensor::FromVector<int64_t>({0}), none, none, kMaxLength},
                       .inputs = none,
                       .targets = none};
  StepFixture fixture;
  Context context(fixture.Options());
  const Variable loss = gpt.LossSum(context, Variable(), input);
  EXPECT_EQ(loss.value().At(0), 0);
  Backward(context, loss);
  for (const auto& parameter : parameters.all()) {
    ASSERT_TRUE(parameter->variable.leaf().has_gradient()) << parameter->name;
    for (int64_t i = 0; i < parameter->shape().num_elements(); ++i) {
      EXPECT_EQ(parameter->variable.leaf().gradient().At(i), 0) << parameter->name;
    }
  }
}

}  // namespace
}  // namespace tandem
