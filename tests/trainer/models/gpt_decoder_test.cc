#include "trainer/models/gpt_decoder.h"

#include <gtest/gtest.h>
#include <numeric>

#include "tests/trainer/autograd/gradient_check.h"

namespace tandem {
namespace {

using models::Gpt;
using models::GptDecoder;
using models::GptInput;
using models::GptOptions;
using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

constexpr int64_t kSymbols = 11, kMaxLength = 12;

std::vector<GptOptions> AllRecipes() {
  GptOptions untied{.vocabulary_size = kSymbols,
                    .max_length = kMaxLength,
                    .layers = 3,
                    .heads = 2,
                    .dim = 8,
                    .ffn_dim = 16,
                    .activation = kernels::Activation::RELU,
                    .norm = {.epsilon = 1e-5, .bias = true},
                    .linear_bias = true,
                    .attention_scale = 0.3,
                    .init = nn::Init::UNIFORM_FAN_IN,
                    .embedding_stddev = 1};
  GptOptions tied{.vocabulary_size = kSymbols,
                  .max_length = kMaxLength,
                  .layers = 2,
                  .heads = 1,
                  .dim = 6,
                  .ffn_dim = 10,
                  .tied_embeddings = true,
                  .init_stddev = 0.5,
                  .embedding_stddev = 0.5};
  GptOptions llama{.vocabulary_size = kSymbols,
                   .max_length = kMaxLength,
                   .layers = 2,
                   .heads = 4,
                   .dim = 16,
                   .ffn_dim = 10,
                   .norm = {.kind = nn::NormKind::RMS, .epsilon = 1e-5},
                   .kv_heads = 2,
                   .gated = true,
                   .rotary_base = 100,
                   .init_stddev = 0.5,
                   .embedding_stddev = 0.5};
  return {untied, tied, llama};
}

std::vector<int64_t> SomeSymbols(int64_t count) {
  std::vector<int64_t> symbols(count);
  for (int64_t i = 0; i < count; ++i) symbols[i] = (i * i + 3 * i + 1) % kSymbols;
  return symbols;
}

// Scores [V] after the last of `symbols`, from the forward pass over all of them.
Tensor FullForward(const Gpt& gpt, const Variable& tokens, const std::vector<int64_t>& symbols) {
  const auto length = static_cast<int64_t>(symbols.size());
  std::vector<int64_t> positions(length);
  std::iota(positions.begin(), positions.end(), 0);
  const GptInput input{
      .rows = {Tensor::FromVector<int64_t>({0, length}), Tensor::FromVector(positions),
               Tensor::FromVector(positions), kMaxLength},
      .inputs = Tensor::FromVector(symbols),
      .targets = Tensor()};
  StepFixture fixture;
  Context context(fixture.Options(1, /*training=*/false));
  return gpt.Logits(context, tokens, gpt.Encode(context, tokens, input))
      .value()
      .Rows(length - 1, length);
}

void ExpectNear(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.num_elements(), b.num_elements());
  for (int64_t i = 0; i < a.num_elements(); ++i)
    EXPECT_NEAR(a.At(i), b.At(i), 1e-5) << "symbol " << i;
}

std::vector<int64_t> Slice(const std::vector<int64_t>& symbols, int64_t begin, int64_t end) {
  return {symbols.begin() + begin, symbols.begin() + end};
}

TEST(GptDecoderTest, ScoresAreThoseOfTheFullForwardAtEveryPosition) {
  for (const GptOptions& options : AllRecipes()) {
    ParameterSet parameters(4, DType::F32);
    const Gpt gpt(options, parameters);
    StepFixture fixture;
    for (const int64_t prompt : {1, 5, 12}) {
      GptDecoder decoder(&gpt, Variable(), &fixture.stream());
      const std::vector<int64_t> symbols = SomeSymbols(kMaxLength);
      Tensor scores = decoder.Feed(Slice(symbols, 0, prompt));
      EXPECT_EQ(scores.shape(), Shape{kSymbols});
      for (int64_t length = prompt; length < kMaxLength; ++length) {
        ExpectNear(scores, FullForward(gpt, Variable(), Slice(symbols, 0, length)));
        scores = decoder.Feed({symbols[length]});
      }
      ExpectNear(scores, FullForward(gpt, Variable(), symbols));
    }
  }
}

TEST(GptDecoderTest, AFullContextGoesOnWithItsNewestHalf) {
  ParameterSet parameters(4, DType::F32);
  const Gpt gpt(AllRecipes()[0], parameters);
  StepFixture fixture;
  GptDecoder decoder(&gpt, Variable(), &fixture.stream());
  const std::vector<int64_t> symbols = SomeSymbols(40);
  int64_t begin = 0;
  for (int64_t length = 1; length <= 40; ++length) {
    const Tensor scores = decoder.Feed({symbols[length - 1]});
    if (length - begin > kMaxLength) begin = length - kMaxLength / 2;
    EXPECT_EQ(decoder.context(), Slice(symbols, begin, length));
    ExpectNear(scores, FullForward(gpt, Variable(), Slice(symbols, begin, length)));
  }
}

TEST(GptDecoderTest, APromptLongerThanTheContextKeepsItsEnd) {
  ParameterSet parameters(4, DType::F32);
  const Gpt gpt(AllRecipes()[0], parameters);
  StepFixture fixture;
  const std::vector<int64_t> symbols = SomeSymbols(30);
  GptDecoder decoder(&gpt, Variable(), &fixture.stream());
  ExpectNear(decoder.Feed(symbols), FullForward(gpt, Variable(), Slice(symbols, 18, 30)));
  ExpectNear(decoder.Feed(Slice(symbols, 0, 9)),
             FullForward(gpt, Variable(), Slice(symbols, 0, 9)));
  EXPECT_EQ(decoder.context(), Slice(symbols, 0, 9));
}

TEST(GptDecoderTest, TokenRowsMayComeFromOutside) {
  for (GptOptions options : AllRecipes()) {
    options.token_rows_outside = true;
    ParameterSet parameters(4, DType::F32);
    const Gpt gpt(options, parameters);
    const Variable tokens =
        Variable::Constant(RandomTensor(Shape{kSymbols, options.dim}, 3, DType::F32));
    StepFixture fixture;
    GptDecoder decoder(&gpt, tokens, &fixture.stream());
    const std::vector<int64_t> symbols = SomeSymbols(6);
    decoder.Feed(Slice(symbols, 0, 5));
    ExpectNear(decoder.Feed({symbols[5]}), FullForward(gpt, tokens, symbols));
  }
}

TEST(GptDecoderTest, AContextOfOneSymbolForgetsTheLast) {
  GptOptions options = AllRecipes()[1];
  options.max_length = 1;
  ParameterSet parameters(4, DType::F32);
  const Gpt gpt(options, parameters);
  StepFixture fixture;
  GptDecoder decoder(&gpt, Variable(), &fixture.stream());
  decoder.Feed({3});
  ExpectNear(decoder.Feed({5}), FullForward(gpt, Variable(), {5}));
}

}  // namespace
}  // namespace tandem
