// The passes around the matmuls on BF16 arrays, in every copy that Vectorised() may choose.
#include <bit>
#include <cmath>
#include <functional>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/loss.h"
#include "kernels/memory/storage.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"

namespace tandem::kernels {
namespace {

constexpr double kHalf = 1.0 / 256;          // the largest relative error of rounding to BF16
constexpr double kSingle = 1.0 / (1 << 24);  // and to F32

Array<BFloat16> RandomHalves(Shape shape, uint64_t seed, double range = 1) {
  return Rounded(RandomArray<float>(shape, seed, range));
}

Array<float> Widened(const Array<BFloat16>& x) { return Converted<float>(Exact(x)); }

// Expects every element within `relative` of its size plus `absolute` of the wanted element.
template <class T>
void ExpectWithin(const Array<T>& found, const Array<double>& wanted, double relative,
                  double absolute) {
  ASSERT_EQ(found.size(), wanted.size());
  for (int64_t i = 0; i < found.size(); ++i) {
    double value;
    if constexpr (std::is_same_v<T, BFloat16>)
      value = ToFloat(found[i]);
    else
      value = found[i];
    ASSERT_LE(std::fabs(value - wanted[i]), relative * std::fabs(wanted[i]) + absolute)
        << "element " << i << ": " << value << ", wanted " << wanted[i];
  }
}

const Shape kShapes[] = {{0, 5}, {1, 1}, {3, 17}, {17, 64}, {65, 65}, {1300, 33}};

// A pass over arrays of one shape: output(x, y). Runs in f32, f64 and BF16 on the same values.
struct ElementPass {
  const char* name;
  std::function<void(const ArrayView& output, const ArrayView& x, const ArrayView& y,
                     Stream& stream)>
      run;
  double math_error;  // absolute error of the f32 instance
};

void PrintTo(const ElementPass& pass, std::ostream* out) { *out << pass.name; }

class ElementPassTest : public testing::TestWithParam<ElementPass> {};

TEST_P(ElementPassTest, Bf16IsTheF32ResultRoundedOnceAndCloseToF64) {
  for (const Shape& shape : kShapes) {
    Array<BFloat16> x = RandomHalves(shape, 1, 4), y = RandomHalves(shape, 2),
                    output(shape, BFloat16{0x7fc0});
    Array<float> x32 = Widened(x), y32 = Widened(y), output32(shape);
    Array<double> x64 = Exact(x), y64 = Exact(y), output64(shape);
    TestStream one(1), three(3);
    GetParam().run(output, x, y, one);
    GetParam().run(output32, x32, y32, one);
    GetParam().run(output64, x64, y64, one);
    ExpectSameBits(output, Rounded(output32));
    ExpectWithin(output, output64, kHalf * (1 + 1e-5), 2 * GetParam().math_error);
    Array<BFloat16> again(shape);
    GetParam().run(again, x, y, three);
    ExpectSameBits(again, output);
    GetParam().run(x, x, y, one);  // in place
    ExpectSameBits(x, output);
  }
}

TEST_P(ElementPassTest, InstructionSetsAgree) {
  Array<float> x = RandomArray<float>({19, 67}, 1, 9), y = RandomArray<float>({19, 67}, 2),
               baseline, output({19, 67});
  Array<BFloat16> half_x = Rounded(x), half_y = Rounded(y), half_baseline, half_output({19, 67});
  ForEachInstructionSet([&](InstructionSet set) {
    TestStream stream;
    GetParam().run(output, x, y, stream);
    GetParam().run(half_output, half_x, half_y, stream);
    if (set == InstructionSet::BASELINE) baseline = output, half_baseline = half_output;
    ExpectSameBits(output, baseline);
    ExpectSameBits(half_output, half_baseline);
  });
}

ElementPass ForwardOf(const char* name, Activation activation) {
  return {name,
          [activation](const ArrayView& out, const ArrayView& x, const ArrayView&, Stream& s) {
            ActivationForward(out, x, activation, s);
          },
          4e-6};
}
ElementPass BackwardOf(const char* name, Activation activation) {
  return {name,
          [activation](const ArrayView& out, const ArrayView& x, const ArrayView& y, Stream& s) {
            ActivationBackward(out, y, x, activation, s);
          },
          4e-6};
}

// Adds y's first row as the bias, in y's type.
void AddFirstRow(const ArrayView& output, const ArrayView& x, const ArrayView& y, Stream& stream) {
  AddBias(output, x, ArrayView(y.data, y.dtype, Shape{y.shape[1]}), stream);
}

void DropSome(const ArrayView& output, const ArrayView& x, const ArrayView&, Stream& stream) {
  Array<int64_t> rows = Consecutive(x.shape[0], 5);
  Dropout({x, output, rows, 0.3f, {11, 12}, 13}, stream);
}

INSTANTIATE_TEST_SUITE_P(
    All, ElementPassTest,
    testing::Values(
        ElementPass{"add", Add, 0},
        ElementPass{"add_scaled",
                    [](const ArrayView& out, const ArrayView& x, const ArrayView& y, Stream& s) {
                      Copy(out, x, s);
                      AddScaled(out, y, -2.5, s);
                    },
                    1e-6},
        ElementPass{"scale",
                    [](const ArrayView& out, const ArrayView& x, const ArrayView&, Stream& s) {
                      Scale(out, x, 0.3, s);
                    },
                    1e-6},
        ElementPass{"multiply", Multiply, 1e-6}, ElementPass{"add_bias", AddFirstRow, 1e-6},
        ElementPass{"dropout", DropSome, 1e-6}, ForwardOf("gelu", Activation::GELU),
        ForwardOf("gelu_tanh", Activation::GELU_TANH), ForwardOf("relu", Activation::RELU),
        ForwardOf("silu", Activation::SILU), ForwardOf("sigmoid", Activation::SIGMOID),
        BackwardOf("gelu_backward", Activation::GELU),
        BackwardOf("gelu_tanh_backward", Activation::GELU_TANH),
        BackwardOf("relu_backward", Activation::RELU),
        BackwardOf("silu_backward", Activation::SILU),
        BackwardOf("sigmoid_backward", Activation::SIGMOID)),
    [](const testing::TestParamInfo<ElementPass>& info) { return std::string(info.param.name); });

TEST(MixedAddTest, AnActivationJoinsTheResidualStreamInF32) {
  for (const Shape& shape : kShapes) {
    const Array<float> residual = RandomArray<float>(shape, 1);
    Array<float> sum(shape), wanted(shape);
    Array<BFloat16> activation = RandomHalves(shape, 2);
    for (int64_t i = 0; i < sum.size(); ++i) wanted[i] = residual[i] + ToFloat(activation[i]);
    ForEachInstructionSet([&](InstructionSet) {
      TestStream stream;
      Array<float> in_place = residual;
      Add(sum, in_place, activation, stream);
      ExpectSameBits(sum, wanted);
      Add(in_place, activation, in_place, stream);  // in the other order
      ExpectSameBits(in_place, wanted);
    });
  }
}

TEST(MixedMultiplyTest, ThePairOfAnActivationAndARowIsMultipliedInF32) {
  for (const Shape& shape : kShapes) {
    Array<float> row = RandomArray<float>(shape, 1), product(shape), wanted(shape);
    Array<BFloat16> activation = RandomHalves(shape, 2);
    for (int64_t i = 0; i < row.size(); ++i) wanted[i] = row[i] * ToFloat(activation[i]);
    ForEachInstructionSet([&](InstructionSet) {
      TestStream stream;
      Multiply(product, row, activation, stream);
      ExpectSameBits(product, wanted);
      Multiply(product, activation, row, stream);
      ExpectSameBits(product, wanted);
    });
  }
}

TEST(MixedAddTest, BiasOfF32IsAddedToBf16) {
  TestStream stream;
  Array<BFloat16> x = RandomHalves({7, 33}, 1), y({7, 33});
  Array<float> bias = RandomArray<float>({33}, 2);
  ForEachInstructionSet([&](InstructionSet) {
    AddBias(y, x, bias, stream);
    for (int64_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i].bits, ToBFloat16(ToFloat(x[i]) + bias[i % 33]).bits);
  });
}

TEST(Bf16FillTest, WritesTheRoundedValue) {
  TestStream stream;
  Array<BFloat16> x({5});
  Fill(x, 1.01, stream);
  EXPECT_EQ(x[4].bits, ToBFloat16(1.01f).bits);
}

TEST(Bf16RoundingTest, IsToNearestEvenAndKeepsWhatIsNotANumber) {
  const uint32_t cases[][2] = {{0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
                               {0x3f807fff, 0x3f80}, {0x7f7fffff, 0x7f80}, {0xff800000, 0xff80},
                               {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}, {0x00008001, 0x0001},
                               {0x80000000, 0x8000}};
  for (const auto& [bits, wanted] : cases) {
    const float x = std::bit_cast<float>(bits);
    EXPECT_EQ(ToBFloat16(x).bits, wanted) << std::hex << bits;
    BFloat16 pair[3][2];
    BFloat16Pair::Of(x, 1.0f).Put(pair[0]);
    BFloat16Pair::Of(1.0f, x).Put(pair[1]);
    BFloat16Pair::Of(x, x).Put(pair[2]);
    for (const auto& [i, j] : {std::pair{0, 0}, {1, 1}, {2, 0}, {2, 1}})
      EXPECT_EQ(pair[i][j].bits, wanted) << std::hex << bits;
    EXPECT_EQ(pair[0][1].bits, 0x3f80) << std::hex << bits;
    EXPECT_EQ(pair[1][0].bits, 0x3f80) << std::hex << bits;
  }
}

// In any order, a sum of `terms` f32 products errs by at most terms * 2^-24 of the sum of their
// absolute values.
TEST(Bf16SumTest, ColumnSumAndRowDotAreF32SumsOfTheExactValues) {
  for (const Shape& shape : kShapes) {
    const int64_t rows = shape[0], columns = shape[1];
    Array<BFloat16> x = RandomHalves(shape, 1), y = RandomHalves(shape, 2);
    Array<float> wide = RandomArray<float>(shape, 3);
    Array<double> by_column({columns}), dot({rows}), mixed_dot({rows});
    for (int64_t i = 0; i < x.size(); ++i) {
      by_column[i % columns] += ToFloat(x[i]);
      dot[i / columns] += static_cast<double>(ToFloat(x[i])) * ToFloat(y[i]);
      mixed_dot[i / columns] += static_cast<double>(wide[i]) * ToFloat(y[i]);
    }
    Array<float> first_columns, first_dot;
    for (int num_threads : {1, 3}) {
      TestStream stream(num_threads);
      Array<float> c({columns}), d({rows}), mixed({rows}), swapped({rows});
      ColumnSum(c, x, false, stream);
      RowDot(d, x, y, stream);
      RowDot(mixed, wide, y, stream);
      RowDot(swapped, y, wide, stream);
      ExpectWithin(c, by_column, 0, kSingle * rows * rows);
      ExpectWithin(d, dot, 0, kSingle * columns * columns);
      ExpectWithin(mixed, mixed_dot, 0, kSingle * columns * columns);
      ExpectSameBits(swapped, mixed);
      if (num_threads == 1) first_columns = c, first_dot = d;
      ExpectSameBits(c, first_columns);
      ExpectSameBits(d, first_dot);
    }
  }
}

TEST(Bf16SumTest, ScaleRowsTakesAndGivesEitherType) {
  TestStream stream;
  Array<BFloat16> x = RandomHalves({9, 17}, 1), halves({9, 17});
  Array<float> wide = RandomArray<float>({9, 17}, 2), scale = RandomArray<float>({9}, 3);
  ForEachInstructionSet([&](InstructionSet) {
    Array<float> y({9, 17}, 1.0f);
    ScaleRows(y, x, scale, true, stream);
    ScaleRows(halves, wide, scale, false, stream);
    for (int64_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i], 1.0f + ToFloat(x[i]) * scale[i / 17]);
      ASSERT_EQ(halves[i].bits, ToBFloat16(wide[i] * scale[i / 17]).bits);
    }
  });
}

TEST(Bf16SumTest, ScatteredRowsAreSummedInF32) {
  const int64_t count = 500, columns = 19, num_rows = 37;
  Array<BFloat16> rows = RandomHalves({count, columns}, 1);
  Array<int64_t> index({count});
  for (int64_t r = 0; r < count; ++r)
    index[r] = static_cast<int64_t>(RandomBelow({1, 1}, 0, r, num_rows));
  Array<float> wanted({num_rows, columns});
  for (int64_t i = 0; i < rows.size(); ++i)
    wanted[index[i / columns] * columns + i % columns] += ToFloat(rows[i]);
  TestStream stream;
  ForEachInstructionSet([&](InstructionSet) {
    Array<float> sums({num_rows, columns}, 7.0f);
    ScatterAddRows(sums, rows, index, false, stream);
    ExpectSameBits(sums, wanted);
  });
  Array<BFloat16> table = RandomHalves({num_rows, columns}, 2), gathered({count, columns});
  GatherRows(gathered, table, index, stream);
  for (int64_t i = 0; i < rows.size(); ++i)
    ASSERT_EQ(gathered[i].bits, table[index[i / columns] * columns + i % columns].bits);
}

Array<int64_t> TargetsOf(Shape shape) {
  Array<int64_t> target({shape[0]});
  for (int64_t r = 0; r < shape[0]; ++r)
    target[r] = static_cast<int64_t>(RandomBelow({5, 5}, 0, r, shape[1]));
  return target;
}

TEST(Bf16CrossEntropyTest, LossIsF32AndGradientsAreRoundedOnce) {
  TestStream stream(2);
  for (const Shape& shape : kShapes) {
    Array<BFloat16> x = RandomHalves(shape, 1, 10), grad(shape);
    Array<float> x32 = Widened(x), loss({shape[0]}), loss32({shape[0]}), grad32(shape);
    Array<double> x64 = Exact(x), loss64({shape[0]}), grad64(shape);
    Array<int64_t> target = TargetsOf(shape);
    CrossEntropy({x, target, loss, grad}, stream);
    CrossEntropy({x32, target, loss32, grad32}, stream);
    CrossEntropy({x64, target, loss64, grad64}, stream);
    ExpectSameBits(loss, loss32);
    ExpectSameBits(grad, Rounded(grad32));
    ExpectWithin(loss, loss64, 2e-6, 2e-6);
    ExpectWithin(grad, grad64, kHalf * (1 + 1e-5), 2e-6);
    CrossEntropy({x, target, loss32, {}}, stream);
    ExpectSameBits(loss32, loss);
    CrossEntropy({x, target, loss32, x}, stream);  // the gradient replaces the logits
    ExpectSameBits(x, grad);
  }
}

TEST(CrossEntropyCopiesTest, InstructionSetsAgree) {
  Array<float> x = RandomArray<float>({11, 131}, 1, 10), loss({11}), grad(x.shape), first_loss,
               first_grad;
  Array<BFloat16> halves = Rounded(x), half_grad(x.shape), first_half_grad;
  Array<float> half_loss({11}), first_half_loss;
  Array<float> scores = RandomArray<float>({203}, 2, 12), label({203}), pair_loss({203}),
               pair_grad({203}), first_pair[2];
  for (int64_t i = 0; i < 203; ++i) label[i] = static_cast<float>(i % 2);
  Array<int64_t> target = TargetsOf(x.shape);
  ForEachInstructionSet([&](InstructionSet set) {
    TestStream stream;
    CrossEntropy({x, target, loss, grad}, stream);
    CrossEntropy({halves, target, half_loss, half_grad}, stream);
    BinaryCrossEntropy({scores, label, pair_loss, pair_grad}, stream);
    if (set == InstructionSet::BASELINE) {
      first_half_loss = half_loss, first_half_grad = half_grad;
      first_loss = loss, first_grad = grad, first_pair[0] = pair_loss, first_pair[1] = pair_grad;
    }
    ExpectSameBits(loss, first_loss);
    ExpectSameBits(grad, first_grad);
    ExpectSameBits(half_loss, first_half_loss);
    ExpectSameBits(half_grad, first_half_grad);
    ExpectSameBits(pair_loss, first_pair[0]);
    ExpectSameBits(pair_grad, first_pair[1]);
  });
}

TEST(SumCopiesTest, InstructionSetsAgree) {
  Array<BFloat16> half = RandomHalves({70, 37}, 1);
  Array<float> wide = RandomArray<float>({70, 37}, 2), columns({37}), dot({70}), first_columns,
               first_dot;
  double squares = 0;
  ForEachInstructionSet([&](InstructionSet set) {
    TestStream stream;
    ColumnSum(columns, half, false, stream);
    RowDot(dot, half, wide, stream);
    const double norm = SquaredNorm(wide.values.data(), wide.size());
    if (set == InstructionSet::BASELINE) first_columns = columns, first_dot = dot, squares = norm;
    ExpectSameBits(columns, first_columns);
    ExpectSameBits(dot, first_dot);
    EXPECT_EQ(norm, squares);
  });
}

// Runs three steps of one rule on the same values in every copy. Compares weights, their bf16
// shadow and the rule's state.
template <class Update>
void ExpectCopiesToAgree(const Update& update) {
  const int64_t n = 211;
  const Array<float> start = RandomArray<float>({n}, 1), g = RandomArray<float>({n}, 2);
  Array<float> first[3];
  ForEachInstructionSet([&](InstructionSet set) {
    Array<float> w = start, m({n}), v({n});
    Array<BFloat16> shadow({n});
    for (uint64_t step = 1; step <= 3; ++step) {
      update(w.values.data(), m.values.data(), v.values.data(), g.values.data(), n, step,
             shadow.values.data());
    }
    if (set == InstructionSet::BASELINE) first[0] = w, first[1] = m, first[2] = v;
    ExpectSameBits(w, first[0]);
    ExpectSameBits(m, first[1]);
    ExpectSameBits(v, first[2]);
    ExpectSameBits(shadow, Rounded(w));
  });
}

TEST(OptimizerCopiesTest, InstructionSetsAgree) {
  ExpectCopiesToAgree([](float* w, float* m, float* v, const float* g, int64_t n, uint64_t step,
                         BFloat16* shadow) {
    AdamUpdate(w, m, v, g, n, {.learning_rate = 1e-2, .weight_decay = 0.1, .step = step}, shadow);
  });
  ExpectCopiesToAgree(
      [](float* w, float*, float* v, const float* g, int64_t n, uint64_t, BFloat16* shadow) {
        AdagradUpdate(w, v, g, n, {.learning_rate = 1e-2, .gradient_scale = 0.3}, shadow);
      });
  ExpectCopiesToAgree([](float* w, float*, float*, const float* g, int64_t n, uint64_t,
                         BFloat16* shadow) {
    SgdUpdate(w, g, n, {.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.3}, shadow);
  });
}

}  // namespace
}  // namespace tandem::kernels
