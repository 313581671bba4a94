// Kernels over rows: reductions, softmax, norms, losses, gather and scatter.
#include "kernels/embedding.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/reduce.h"
#include "kernels/softmax.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

const Shape kShapes[] = {{0, 5}, {1, 1}, {3, 17}, {17, 64}, {65, 65}, {1500, 3}, {700, 130}};

TEST(ReduceTest, SumsMatchTheFormulaAndDoNotDependOnThreads) {
  for (const Shape& shape : kShapes) {
    const int64_t rows = shape[0], columns = shape[1];
    Array<float> x = RandomArray<float>(shape, 1), y = RandomArray<float>(shape, 2);
    Array<double> by_column({columns}), dot({rows});
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < x.size(); ++i) {
      by_column[i % columns] += x[i];
      dot[i / columns] += static_cast<double>(x[i]) * y[i];
      sum += x[i];
      squares += static_cast<double>(x[i]) * x[i];
    }
    Array<float> first_columns, first_dot;
    for (int num_threads : {1, 3}) {
      TestStream stream(num_threads);
      Array<float> c({columns}, 1.0f), d({rows});
      ColumnSum(c, x, false, stream);
      RowDot(d, x, y, stream);
      ExpectNear(c, by_column, 1e-5);
      ExpectNear(d, dot, 1e-5);
      EXPECT_NEAR(Sum(x, stream), sum, 1e-8);
      EXPECT_NEAR(SumOfSquares(x, stream), squares, 1e-12 * squares);
      if (num_threads == 1) first_columns = c, first_dot = d;
      ExpectSameBits(c, first_columns);
      ExpectSameBits(d, first_dot);
      Array<float> twice = c;
      ColumnSum(twice, x, true, stream);
      for (int64_t i = 0; i < columns; ++i) ASSERT_EQ(twice[i], c[i] + c[i]);
    }
  }
}

TEST(ReduceTest, SumDoesNotDependOnThreadsInItsLastBit) {
  Array<float> x = RandomArray<float>({100003}, 1);
  TestStream one(1), three(3);
  EXPECT_EQ(Sum(x, one), Sum(x, three));
  EXPECT_EQ(SumOfSquares(x, one), SumOfSquares(x, three));
}

TEST(ReduceTest, ScaleRowsMultipliesAndAccumulates) {
  TestStream stream;
  Array<float> x = RandomArray<float>({9, 17}, 1), scale = RandomArray<float>({9}, 2), y(x.shape);
  ForEachInstructionSet([&](InstructionSet) {
    ScaleRows(y, x, scale, false, stream);
    for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] * scale[i / 17]);
    Array<float> z = y;
    ScaleRows(z, x, scale, true, stream);
    for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(z[i], y[i] + y[i]);
  });
}

TEST(SoftmaxTest, RowsAreProbabilitiesAndMatchF64) {
  TestStream stream(2);
  for (const Shape& shape : kShapes) {
    Array<float> x = RandomArray<float>(shape, 1, 20), y(shape);
    Array<double> x64 = Converted<double>(x), y64(shape);
    SoftmaxForward(y, x, stream);
    SoftmaxForward(y64, x64, stream);
    ExpectNear(y, y64, 1e-6);
    for (int64_t r = 0; r < shape[0]; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < shape[1]; ++c) sum += y64[r * shape[1] + c];
      ASSERT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(SoftmaxTest, LargeLogitsDoNotOverflow) {
  TestStream stream;
  Array<float> x({1, 3});
  x[0] = 3e38f, x[1] = 3e38f, x[2] = -3e38f;
  SoftmaxForward(x, x, stream);
  EXPECT_EQ(x[0], 0.5f);
  EXPECT_EQ(x[1], 0.5f);
  EXPECT_EQ(x[2], 0.0f);
}

TEST(SoftmaxTest, BitsAreTheSameInEveryInstructionSet) {
  TestStream stream;
  for (const Shape& shape : kShapes) {
    const auto run = [&](Array<float>& y, Array<float>& grad) {
      Array<float> x = RandomArray<float>(shape, 1, 20), weight = RandomArray<float>(shape, 2);
      SoftmaxForward(y, x, stream);
      SoftmaxBackward(grad, weight, y, stream);
    };
    Array<float> wanted_y(shape), wanted_grad(shape);
    run(wanted_y, wanted_grad);
    ForEachInstructionSet([&](InstructionSet) {
      Array<float> y(shape), grad(shape);
      run(y, grad);
      ExpectSameBits(y, wanted_y);
      ExpectSameBits(grad, wanted_grad);
    });
  }
}

TEST(SoftmaxTest, GradientMatchesDifferences) {
  TestStream stream;
  Array<double> x = RandomArray<double>({3, 19}, 1, 2), weight = RandomArray<double>({3, 19}, 2),
                y(x.shape), grad(x.shape);
  SoftmaxForward(y, x, stream);
  SoftmaxBackward(grad, weight, y, stream);
  ExpectNear(
      grad, NumericGradient(x, weight, [&](Array<double>& out) { SoftmaxForward(out, x, stream); }),
      1e-8);
}

// All arrays of one norm, in type T.
template <class T>
struct NormRun {
  Array<T> x, gamma, beta, output, mean, inverse, grad_output, grad_input, grad_gamma, grad_beta;
  NormRun(Shape shape, bool affine)
      : x(RandomArray<T>(shape, 1, 3)),
        output(shape),
        mean({shape[0]}),
        inverse({shape[0]}),
        grad_output(RandomArray<T>(shape, 2)),
        grad_input(shape) {
    if (!affine) return;
    gamma = RandomArray<T>({shape[1]}, 3);
    beta = RandomArray<T>({shape[1]}, 4);
    grad_gamma = Array<T>({shape[1]}, T(9));
    grad_beta = Array<T>({shape[1]}, T(9));
  }
  static ArrayView Optional(Array<T>& a) { return a.values.empty() ? ArrayView() : a.view(); }
  void LayerForward(Stream& stream) {
    LayerNormForward({x, Optional(gamma), Optional(beta), output, mean, inverse, 1e-5}, stream);
  }
  void Layer(Stream& stream) {
    LayerForward(stream);
    LayerNormBackward({grad_output, x, Optional(gamma), mean, inverse, grad_input,
                       Optional(grad_gamma), Optional(grad_beta)},
                      stream);
  }
  void RmsForward(Stream& stream) {
    RmsNormForward({x, Optional(gamma), output, inverse, 1e-5}, stream);
  }
  void Rms(Stream& stream) {
    RmsForward(stream);
    RmsNormBackward({grad_output, x, Optional(gamma), inverse, grad_input, Optional(grad_gamma)},
                    stream);
  }
};

TEST(NormTest, F32MatchesF64AndDoesNotDependOnThreads) {
  for (const Shape& shape : kShapes) {
    for (bool affine : {false, true}) {
      for (bool layer : {false, true}) {
        SCOPED_TRACE(testing::Message() << shape << affine << layer);
        NormRun<float> one(shape, affine), three(shape, affine);
        NormRun<double> reference(shape, affine);
        reference.x = Converted<double>(one.x);
        TestStream single(1), triple(3);
        layer ? one.Layer(single) : one.Rms(single);
        layer ? three.Layer(triple) : three.Rms(triple);
        layer ? reference.Layer(single) : reference.Rms(single);
        const double tolerance =
            shape[1] < 5 ? 2e-3 : 3e-5;  // a narrow row's variance may be close to 0
        ExpectNear(one.output, reference.output, tolerance);
        ExpectNear(one.grad_input, reference.grad_input, tolerance);
        ExpectNear(one.grad_gamma, reference.grad_gamma, tolerance);
        if (layer) ExpectNear(one.grad_beta, reference.grad_beta, tolerance);
        ExpectSameBits(one.output, three.output);
        ExpectSameBits(one.grad_input, three.grad_input);
        ExpectSameBits(one.grad_gamma, three.grad_gamma);
        ExpectSameBits(one.grad_beta, three.grad_beta);
      }
    }
  }
}

TEST(NormTest, BitsAreTheSameInEveryInstructionSet) {
  TestStream stream;
  for (const Shape& shape : kShapes) {
    for (bool layer : {false, true}) {
      NormRun<float> wanted(shape, true);
      layer ? wanted.Layer(stream) : wanted.Rms(stream);
      ForEachInstructionSet([&](InstructionSet) {
        NormRun<float> run(shape, true);
        layer ? run.Layer(stream) : run.Rms(stream);
        ExpectSameBits(run.output, wanted.output);
        ExpectSameBits(run.grad_input, wanted.grad_input);
        ExpectSameBits(run.grad_gamma, wanted.grad_gamma);
        ExpectSameBits(run.grad_beta, wanted.grad_beta);
      });
    }
  }
}

// The residual stream stays f32. Only the norm's output and the gradient that comes back are
// rounded.
TEST(NormTest, Bf16OutputIsTheRoundedOneAndItsGradientIsTakenAsItIs) {
  TestStream stream;
  for (const Shape& shape : kShapes) {
    for (bool layer : {false, true}) {
      NormRun<float> run(shape, true);
      Array<BFloat16> output(shape), grad_output = Rounded(run.grad_output);
      Array<float> grad_input(shape), grad_gamma({shape[1]}), grad_beta({shape[1]});
      run.grad_output = Converted<float>(Exact(grad_output));
      layer ? run.Layer(stream) : run.Rms(stream);
      ForEachInstructionSet([&](InstructionSet) {
        if (layer) {
          LayerNormForward({run.x, run.gamma, run.beta, output, run.mean, run.inverse, 1e-5},
                           stream);
          LayerNormBackward({grad_output, run.x, run.gamma, run.mean, run.inverse, grad_input,
                             grad_gamma, grad_beta},
                            stream);
          ExpectSameBits(grad_beta, run.grad_beta);
        } else {
          RmsNormForward({run.x, run.gamma, output, run.inverse, 1e-5}, stream);
          RmsNormBackward({grad_output, run.x, run.gamma, run.inverse, grad_input, grad_gamma},
                          stream);
        }
        ExpectSameBits(output, Rounded(run.output));
        ExpectSameBits(grad_input, run.grad_input);
        ExpectSameBits(grad_gamma, run.grad_gamma);
      });
    }
  }
}

// A row's bits do not depend on the rows that share its group.
TEST(NormTest, RowDoesNotDependOnItsNeighbours) {
  TestStream stream;
  NormRun<float> many({37, 100}, true), one({1, 100}, true);
  one.gamma = many.gamma, one.beta = many.beta;
  many.Layer(stream);
  for (int64_t r : {0, 15, 16, 36}) {
    std::copy_n(many.x.values.begin() + r * 100, 100, one.x.values.begin());
    std::copy_n(many.grad_output.values.begin() + r * 100, 100, one.grad_output.values.begin());
    one.Layer(stream);
    for (int64_t c = 0; c < 100; ++c) {
      ASSERT_EQ(one.output[c], many.output[r * 100 + c]);
      ASSERT_EQ(one.grad_input[c], many.grad_input[r * 100 + c]);
    }
  }
}

TEST(NormTest, LayerNormRowHasMeanZeroAndVarianceOne) {
  TestStream stream;
  NormRun<double> run({5, 33}, false);
  run.LayerForward(stream);
  for (int64_t r = 0; r < 5; ++r) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < 33; ++c) {
      sum += run.output[r * 33 + c];
      squares += run.output[r * 33 + c] * run.output[r * 33 + c];
    }
    EXPECT_NEAR(sum, 0, 1e-12);
    EXPECT_NEAR(squares / 33, 1, 1e-4);
  }
}

TEST(NormTest, GradientsMatchDifferences) {
  TestStream stream;
  for (bool layer : {false, true}) {
    NormRun<double> run({4, 11}, true);
    layer ? run.Layer(stream) : run.Rms(stream);
    NormRun<double> probe = run;
    const auto forward = [&](Array<double>& y) {
      layer ? probe.LayerForward(stream) : probe.RmsForward(stream);
      y = probe.output;
    };
    ExpectNear(run.grad_input, NumericGradient(probe.x, run.grad_output, forward), 1e-7);
    ExpectNear(run.grad_gamma, NumericGradient(probe.gamma, run.grad_output, forward), 1e-7);
    if (layer)
      ExpectNear(run.grad_beta, NumericGradient(probe.beta, run.grad_output, forward), 1e-7);
  }
}

template <class T>
Array<int64_t> Targets(Shape shape) {
  Array<int64_t> target({shape[0]});
  for (int64_t r = 0; r < shape[0]; ++r)
    target[r] = static_cast<int64_t>(RandomBelow({5, 5}, 0, r, shape[1]));
  return target;
}

TEST(CrossEntropyTest, MatchesF64InPlaceWithAndWithoutGradient) {
  TestStream stream(2);
  for (const Shape& shape : kShapes) {
    Array<float> x = RandomArray<float>(shape, 1, 10), loss({shape[0]}), only_loss({shape[0]});
    Array<double> x64 = Converted<double>(x), loss64({shape[0]}), grad64(shape);
    Array<int64_t> target = Targets<float>(shape);
    CrossEntropy({x, target, only_loss, {}}, stream);
    CrossEntropy({x, target, loss, x}, stream);  // the gradient replaces the logits
    CrossEntropy({x64, target, loss64, grad64}, stream);
    ExpectNear(loss, loss64, 2e-6);
    ExpectNear(only_loss, loss64, 2e-6);
    ExpectNear(x, grad64, 2e-6);
  }
}

TEST(CrossEntropyTest, UniformLogitsCostTheLogarithmOfTheClasses) {
  TestStream stream;
  Array<double> x({1, 50}, 3.0), loss({1}), grad({1, 50});
  Array<int64_t> target({1}, 7);
  CrossEntropy({x, target, loss, grad}, stream);
  EXPECT_NEAR(loss[0], std::log(50.0), 1e-12);
  EXPECT_NEAR(grad[7], 1.0 / 50 - 1, 1e-12);
  EXPECT_NEAR(grad[8], 1.0 / 50, 1e-12);
}

TEST(CrossEntropyTest, GradientMatchesDifferences) {
  TestStream stream;
  Array<double> x = RandomArray<double>({3, 7}, 1, 2), loss({3}), grad(x.shape), ones({3}, 1.0);
  Array<int64_t> target = Targets<double>(x.shape);
  CrossEntropy({x, target, loss, grad}, stream);
  ExpectNear(grad,
             NumericGradient(x, ones,
                             [&](Array<double>& y) {
                               CrossEntropy({x, target, y, {}}, stream);
                             }),
             1e-8);
}

TEST(CrossEntropyTest, TargetOutsideTheClassesDies) {
  TestStream stream;
  Array<float> x({1, 3}), loss({1});
  Array<int64_t> target({1}, 3);
  EXPECT_DEATH(CrossEntropy({x, target, loss, {}}, stream), "target 3 of row 0, classes 3");
}

TEST(BinaryCrossEntropyTest, MatchesF64AndItsDifferences) {
  TestStream stream(2);
  for (int64_t n : {0, 1, 17, 5000}) {
    Array<float> x = RandomArray<float>({n}, 1, 12), label({n}), loss({n}), grad({n});
    for (int64_t i = 0; i < n; ++i) label[i] = static_cast<float>(i % 2);
    Array<double> x64 = Converted<double>(x), label64 = Converted<double>(label), loss64({n}),
                  grad64({n});
    BinaryCrossEntropy({x, label, loss, grad}, stream);
    BinaryCrossEntropy({x64, label64, loss64, grad64}, stream);
    ExpectNear(loss, loss64, 1e-6);
    ExpectNear(grad, grad64, 1e-6);
    if (n != 17) continue;
    const Array<double> ones({n}, 1.0);
    const auto forward = [&](Array<double>& y) {
      BinaryCrossEntropy({x64, label64, y, {}}, stream);
    };
    ExpectNear(grad64, NumericGradient(x64, ones, forward), 1e-7);
  }
}

TEST(BinaryCrossEntropyTest, StridedLabelsDie) {
  TestStream stream;
  Array<float> x({4}), label({8}), loss({4});
  EXPECT_DEATH(BinaryCrossEntropy(
                   {x, ArrayView(label.values.data(), DType::F32, {4}, {2}), loss, {}}, stream),
               "label.is_dense");
}

TEST(CrossEntropyTest, StridedGradientDies) {
  TestStream stream;
  Array<float> x({2, 3}), loss({2}), grad({2, 6});
  Array<int64_t> target({2});
  EXPECT_DEATH(
      CrossEntropy({x, target, loss, ArrayView(grad.values.data(), DType::F32, {2, 3}, {6, 1})},
                   stream),
      "is_dense");
}

TEST(BinaryCrossEntropyTest, ExtremeLogitsStayFinite) {
  TestStream stream;
  Array<float> x({2}), label({2}), loss({2}), grad({2});
  x[0] = 1e30f, x[1] = -1e30f, label[1] = 1;
  BinaryCrossEntropy({x, label, loss, grad}, stream);
  EXPECT_EQ(loss[0], 1e30f);
  EXPECT_EQ(loss[1], 1e30f);
  EXPECT_EQ(grad[0], 1.0f);
  EXPECT_EQ(grad[1], -1.0f);
}

TEST(EmbeddingTest, GatherTakesRowsAndScatterIsItsTranspose) {
  for (int64_t count : {0, 1, 17, 3000}) {
    for (int64_t columns : {1, 3, 64}) {
      const int64_t num_rows = 37;
      Array<float> table = RandomArray<float>({num_rows, columns}, 1), gathered({count, columns});
      Array<int64_t> index({count});
      for (int64_t r = 0; r < count; ++r)
        index[r] = static_cast<int64_t>(RandomBelow({1, 1}, 0, r, 30));  // 30 .. 36 stay empty
      for (int num_threads : {1, 3}) {
        TestStream stream(num_threads);
        GatherRows(gathered, table, index, stream);
        for (int64_t i = 0; i < gathered.size(); ++i)
          ASSERT_EQ(gathered[i], table[index[i / columns] * columns + i % columns]);
        Array<float> rows = RandomArray<float>({count, columns}, 2);
        Array<float> wanted({num_rows, columns}), wanted_more({num_rows, columns}, 0.5f);
        for (int64_t i = 0; i < gathered.size();
             ++i) {  // ascending r is the order of the plain loop
          wanted[index[i / columns] * columns + i % columns] += rows[i];
          wanted_more[index[i / columns] * columns + i % columns] += rows[i];
        }
        ForEachInstructionSet([&](InstructionSet) {
          Array<float> sums({num_rows, columns}, 5.0f), more({num_rows, columns}, 0.5f);
          ScatterAddRows(sums, rows, index, false, stream);
          ScatterAddRows(more, rows, index, true, stream);
          ExpectSameBits(sums, wanted);
          ExpectSameBits(more, wanted_more);
        });
      }
    }
  }
}

TEST(EmbeddingTest, IndexOutsideTheTableDies) {
  TestStream stream;
  Array<float> table({4, 2}), rows({1, 2});
  Array<int64_t> high({1}, 4), negative({1}, -1);
  EXPECT_DEATH(GatherRows(rows, table, high, stream), "index 4 of row 0, table 4");
  EXPECT_DEATH(ScatterAddRows(table, rows, negative, false, stream), "index -1 of row 0, table 4");
}

}  // namespace
}  // namespace tandem::kernels
