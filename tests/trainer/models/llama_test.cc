// The decoder with a Llama's options: RMS norms, rotary positions, gated FFNs and shared heads of
// keys and values.
#include <cmath>
#include <gtest/gtest.h>

#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/models/plain_layers.h"
#include "trainer/models/gpt.h"

namespace tandem {
namespace {

using models::Gpt;
using models::GptInput;
using models::GptOptions;
using ::tandem::testing::CheckGradients;
using ::tandem::testing::RandomTensor;
using ::tandem::testing::StepFixture;

constexpr int64_t kSymbols = 7, kMaxLength = 6, kDim = 16, kHeads = 4, kKvHeads = 2, kWidth = 4,
                  kFfnDim = 6;
constexpr double kBase = 50, kEpsilon = 1e-5;

GptOptions Llama(bool tied) {
  return {.vocabulary_size = kSymbols,
          .max_length = kMaxLength,
          .layers = 2,
          .heads = kHeads,
          .dim = kDim,
          .ffn_dim = kFfnDim,
          .norm = {.kind = nn::NormKind::RMS, .epsilon = kEpsilon},
          .kv_heads = kKvHeads,
          .gated = true,
          .rotary_base = kBase,
          .tied_embeddings = tied,
          .init_stddev = 0.4,
          .embedding_stddev = 0.7};
}

// Windows of 6 and 4 symbols, packed.
GptInput MakeInput() {
  std::vector<int64_t> positions, row_index, inputs, targets;
  for (const auto& [sample, length] : {std::pair<int64_t, int64_t>{0, 6}, {1, 4}}) {
    for (int64_t i = 0; i < length; ++i) {
      positions.push_back(i);
      row_index.push_back(sample * kMaxLength + i);
      inputs.push_back((i * 3 + sample * 2) % kSymbols);
      targets.push_back((i * 5 + 1) % kSymbols);
    }
  }
  return {.rows = {.offsets = Tensor::FromVector<int64_t>({0, 6, 10}),
                   .positions = Tensor::FromVector(positions),
                   .row_index = Tensor::FromVector(row_index),
                   .max_length = kMaxLength},
          .inputs = Tensor::FromVector(inputs),
          .targets = Tensor::FromVector(targets)};
}

void Randomise(const ParameterSet& parameters) {
  uint64_t seed = 100;
  for (const auto& parameter : parameters.all()) {
    const Tensor& value = parameter->variable.value();
    const Tensor random = RandomTensor(value.shape(), ++seed, DType::F64, 0.3);
    for (int64_t i = 0; i < value.num_elements(); ++i) value.Set(i, value.At(i) + random.At(i));
  }
}

// An independent forward pass in double precision, one window at a time. Positions turn pairs of
// complex numbers.
class Reference : private PlainLayers {
 public:
  explicit Reference(const ParameterSet& parameters) : PlainLayers(parameters, kEpsilon) {}

  Matrix Logits(const std::vector<int64_t>& symbols, bool tied) const {
    Matrix x(symbols.size(), std::vector<double>(kDim));
    for (size_t t = 0; t < x.size(); ++t) {
      for (int64_t f = 0; f < kDim; ++f) x[t][f] = At("embedding.tokens", symbols[t] * kDim + f);
    }
    for (const std::string block : {"blocks.0", "blocks.1"}) {
      const Matrix normed = Rms(x, block + ".attention_norm");
      const Matrix attended = Attend(Project(normed, block + ".attention.query"),
                                     Project(normed, block + ".attention.key_value"));
      x = Plus(x, Project(attended, block + ".attention.output"));
      const Matrix inner = Project(Rms(x, block + ".ffn_norm"), block + ".ffn.gate_up");
      Matrix hidden(x.size(), std::vector<double>(kFfnDim));
      for (size_t t = 0; t < x.size(); ++t) {
        for (int64_t f = 0; f < kFfnDim; ++f)
          hidden[t][f] = inner[t][f] / (1 + std::exp(-inner[t][f])) * inner[t][kFfnDim + f];
      }
      x = Plus(x, Project(hidden, block + ".ffn.down"));
    }
    x = Rms(x, "final_norm");
    if (!tied) return Project(x, "head");
    return ProjectTied(x, "embedding.tokens");
  }

 private:
  Matrix Rms(Matrix x, const std::string& name) const {
    for (auto& row : x) {
      double square = 0;
      for (const double v : row) square += v * v / kDim;
      for (size_t f = 0; f < row.size(); ++f)
        row[f] *= At(name + ".gamma", static_cast<int64_t>(f)) / std::sqrt(square + kEpsilon);
    }
    return x;
  }
  // Element `f` of a head that begins at `begin`, turned by the position.
  static double Turned(const std::vector<double>& row, int64_t begin, int64_t f, size_t position) {
    const int64_t half = kWidth / 2, pair = f % half;
    const double angle =
        static_cast<double>(position) * std::pow(kBase, -static_cast<double>(pair) / half);
    const double a = row[begin + pair], b = row[begin + half + pair];
    return f < half ? a * std::cos(angle) - b * std::sin(angle)
                    : b * std::cos(angle) + a * std::sin(angle);
  }
  static Matrix Attend(const Matrix& q, const Matrix& kv) {
    Matrix y(q.size(), std::vector<double>(kDim, 0));
    for (int64_t head = 0; head < kHeads; ++head) {
      const int64_t of_q = head * kWidth, of_k = head / (kHeads / kKvHeads) * kWidth,
                    of_v = kKvHeads * kWidth + of_k;
      for (size_t t = 0; t < q.size(); ++t) {
        std::vector<double> weight(t + 1, 0);
        double sum = 0;
        for (size_t j = 0; j <= t; ++j) {
          double score = 0;
          for (int64_t f = 0; f < kWidth; ++f)
            score += Turned(q[t], of_q, f, t) * Turned(kv[j], of_k, f, j);
          sum += weight[j] = std::exp(score / std::sqrt(static_cast<double>(kWidth)));
        }
        for (size_t j = 0; j <= t; ++j) {
          for (int64_t f = 0; f < kWidth; ++f) y[t][of_q + f] += weight[j] / sum * kv[j][of_v + f];
        }
      }
    }
    return y;
  }
};

TEST(LlamaTest, LossesAgreeWithAnIndependentDoubleForward) {
  for (const bool tied : {false, true}) {
    ParameterSet parameters(5, DType::F64);
    const Gpt llama(Llama(tied), parameters);
    Randomise(parameters);
    const GptInput input = MakeInput();
    StepFixture fixture;
    Context context(fixture.Options(1, /*training=*/false));
    const Tensor losses = llama.Losses(context, Variable(), input);
    const Reference reference(parameters);
    for (int64_t s = 0; s < 2; ++s) {
      const int64_t begin = s * 6, end = s == 0 ? 6 : 10;
      const int64_t* const symbols = input.inputs.data<int64_t>();
      const auto logits = reference.Logits({symbols + begin, symbols + end}, tied);
      for (int64_t t = begin; t < end; ++t) {
        double sum = 0;
        for (const double logit : logits[t - begin]) sum += std::exp(logit);
        EXPECT_NEAR(losses.At(t),
                    std::log(sum) - logits[t - begin][input.targets.data<int64_t>()[t]], 1e-12)
            << "token " << t;
      }
    }
  }
}

TEST(LlamaTest, GradientsOfEveryParameter) {
  for (const bool tied : {false, true}) {
    GptOptions options = Llama(tied);
    options.dropout = 0.2f;
    ParameterSet parameters(5, DType::F64);
    const Gpt llama(options, parameters);
    Randomise(parameters);
    const GptInput input = MakeInput();
    std::vector<Variable> leaves;
    for (const auto& parameter : parameters.all()) leaves.push_back(parameter->variable);
    CheckGradients([&](Context& c) { return llama.LossSum(c, Variable(), input); }, leaves, 2e-5);
  }
}

}  // namespace
}  // namespace tandem
