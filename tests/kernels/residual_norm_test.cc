// Norms of x + Drop(y) on the CPU: they have the bits of the separate operations. Also checks their
// derivative.
#include "kernels/cast.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

constexpr RandomKey kKey{3, 5};
constexpr uint64_t kStep = 7;

template <class T>
Array<T> Random(Shape shape, uint64_t seed) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return Rounded(RandomArray<float>(shape, seed));
  else
    return RandomArray<T>(shape, seed);
}

template <class T>
void ExpectEqualBytes(const Array<T>& found, const Array<T>& wanted, const char* what) {
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_EQ(std::memcmp(found.values.data(), wanted.values.data(),
                        static_cast<size_t>(found.size()) * sizeof(T)),
            0)
      << what;
}

// x and its gradients are of type S, y and the output of type O, statistics of type M.
template <class S, class O, class M>
struct Passes {
  Passes(int64_t rows, int64_t columns, float probability)
      : probability(probability),
        x(Random<S>({rows, columns}, 1)),
        sum({rows, columns}),
        grad_sum(Random<S>({rows, columns}, 2)),
        grad_x({rows, columns}),
        y(Random<O>({rows, columns}, 3)),
        output({rows, columns}),
        grad_output(Random<O>({rows, columns}, 4)),
        grad_y({rows, columns}),
        gamma(Random<M>({columns}, 5)),
        beta(Random<M>({columns}, 6)),
        mean({rows}),
        inverse({rows}),
        grad_gamma({columns}),
        grad_beta({columns}),
        mask({rows, DropoutMaskWords(columns)}),
        row_index(Consecutive(rows, 11)) {}

  ResidualDropout dropout() {
    return {.probability = probability,
            .row_index = row_index,
            .key = kKey,
            .step = kStep,
            .mask = mask};
  }
  void Fused(bool layer, Stream& stream) {
    const ResidualForward forward{.y = y, .sum = sum, .dropout = dropout()};
    const ResidualBackward backward{.grad_sum = grad_sum, .grad_y = grad_y, .dropout = dropout()};
    if (layer) {
      LayerNormForward({.x = x,
                        .gamma = gamma,
                        .beta = beta,
                        .output = output,
                        .mean = mean,
                        .inverse = inverse,
                        .residual = forward},
                       stream);
      LayerNormBackward({.grad_output = grad_output,
                         .x = sum,
                         .gamma = gamma,
                         .mean = mean,
                         .inverse = inverse,
                         .grad_input = grad_x,
                         .grad_gamma = grad_gamma,
                         .grad_beta = grad_beta,
                         .residual = backward},
                        stream);
    } else {
      RmsNormForward(
          {.x = x, .gamma = gamma, .output = output, .inverse = inverse, .residual = forward},
          stream);
      RmsNormBackward({.grad_output = grad_output,
                       .x = sum,
                       .gamma = gamma,
                       .inverse = inverse,
                       .grad_input = grad_x,
                       .grad_gamma = grad_gamma,
                       .residual = backward},
                      stream);
    }
  }
  void Separate(bool layer, Stream& stream) {
    Array<O> dropped = y;
    if (probability > 0) Dropout({y, dropped, row_index, probability, kKey, kStep, mask}, stream);
    Add(sum, x, dropped, stream);
    if (layer) {
      LayerNormForward({.x = sum,
                        .gamma = gamma,
                        .beta = beta,
                        .output = output,
                        .mean = mean,
                        .inverse = inverse},
                       stream);
      LayerNormBackward({.grad_output = grad_output,
                         .x = sum,
                         .gamma = gamma,
                         .mean = mean,
                         .inverse = inverse,
                         .grad_input = grad_x,
                         .grad_gamma = grad_gamma,
                         .grad_beta = grad_beta},
                        stream);
    } else {
      RmsNormForward({.x = sum, .gamma = gamma, .output = output, .inverse = inverse}, stream);
      RmsNormBackward({.grad_output = grad_output,
                       .x = sum,
                       .gamma = gamma,
                       .inverse = inverse,
                       .grad_input = grad_x,
                       .grad_gamma = grad_gamma},
                      stream);
    }
    Add(grad_x, grad_x, grad_sum, stream);
    if constexpr (std::is_same_v<S, O>)
      grad_y = grad_x;
    else
      Cast(grad_y, grad_x, stream);
    if (probability > 0) DropoutBackward({grad_y, grad_y, mask, probability}, stream);
  }

  float probability;
  Array<S> x, sum, grad_sum, grad_x;
  Array<O> y, output, grad_output, grad_y;
  Array<M> gamma, beta, mean, inverse, grad_gamma, grad_beta;
  Array<uint64_t> mask;
  Array<int64_t> row_index;
};

template <class S, class O, class M>
void ExpectTheOperationsBits() {
  for (const Shape& shape :
       {Shape{0, 8}, Shape{1, 1}, Shape{3, 17}, Shape{65, 64}, Shape{33, 65}, Shape{5, 300}}) {
    for (const float probability : {0.0f, 0.3f}) {
      for (const bool layer : {true, false}) {
        SCOPED_TRACE(testing::Message()
                     << shape << ", " << probability << (layer ? ", layer norm" : ", RMS norm"));
        Passes<S, O, M> wanted(shape[0], shape[1], probability),
            found(shape[0], shape[1], probability);
        TestStream one, three(3);
        wanted.Separate(layer, one);
        found.Fused(layer, three);
        ExpectEqualBytes(found.sum, wanted.sum, "sum");
        ExpectEqualBytes(found.output, wanted.output, "output");
        ExpectEqualBytes(found.grad_x, wanted.grad_x, "grad_x");
        ExpectEqualBytes(found.grad_y, wanted.grad_y, "grad_y");
        ExpectEqualBytes(found.grad_gamma, wanted.grad_gamma, "grad_gamma");
        ExpectEqualBytes(found.grad_beta, wanted.grad_beta, "grad_beta");
        ExpectEqualBytes(found.mask, wanted.mask, "mask");
      }
    }
  }
}

TEST(ResidualNormTest, F32HasTheBitsOfItsOperations) {
  ExpectTheOperationsBits<float, float, float>();
}
TEST(ResidualNormTest, Bf16HasTheBitsOfItsOperations) {
  ExpectTheOperationsBits<BFloat16, BFloat16, float>();
}
TEST(ResidualNormTest, F32WithBf16BesideHasTheBitsOfItsOperations) {
  ExpectTheOperationsBits<float, BFloat16, float>();
}

TEST(ResidualNormTest, GradientsMatchDifferences) {
  for (const bool layer : {true, false}) {
    SCOPED_TRACE(layer ? "layer norm" : "RMS norm");
    TestStream stream;
    Passes<double, double, double> run(4, 11, 0.3f);
    run.Fused(layer, stream);
    Passes<double, double, double> probe = run;
    // The loss weighs the output by grad_output and the sum by grad_sum.
    Array<double> weights({2, 44});
    std::copy_n(run.grad_output.values.begin(), 44, weights.values.begin());
    std::copy_n(run.grad_sum.values.begin(), 44, weights.values.begin() + 44);
    const auto outputs = [&](Array<double>& both) {
      probe.Fused(layer, stream);
      std::copy_n(probe.output.values.begin(), 44, both.values.begin());
      std::copy_n(probe.sum.values.begin(), 44, both.values.begin() + 44);
    };
    ExpectNear(run.grad_x, NumericGradient(probe.x, weights, outputs), 1e-7);
    ExpectNear(run.grad_y, NumericGradient(probe.y, weights, outputs), 1e-7);
    ExpectNear(run.grad_gamma, NumericGradient(probe.gamma, weights, outputs), 1e-7);
  }
}

TEST(ResidualNormTest, MismatchedPartsDie) {
  TestStream stream;
  Passes<float, float, float> run(4, 8, 0.5f);
  LayerNormForwardArgs args{.x = run.x,
                            .gamma = {},
                            .beta = {},
                            .output = run.output,
                            .mean = run.mean,
                            .inverse = run.inverse,
                            .residual = {.y = run.y, .sum = run.sum, .dropout = run.dropout()}};
  LayerNormForwardArgs wrong = args;
  wrong.residual.sum = ArrayView();
  EXPECT_DEATH(LayerNormForward(wrong, stream), "check failed");
  wrong = args;
  wrong.residual.y = ArrayView(run.y.values.data(), DType::BF16, {4, 8});
  EXPECT_DEATH(LayerNormForward(wrong, stream), "bf16 .4, 8. beside f32");
  wrong = args;
  wrong.residual.dropout.row_index = ArrayView(run.row_index.values.data(), DType::I64, {3});
  EXPECT_DEATH(LayerNormForward(wrong, stream), "3 vs 4");
}

}  // namespace
}  // namespace tandem::kernels
