#include <tuple>

#include "kernels/gemm.h"
#include "kernels/loss.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"

namespace tandem::kernels {
namespace {

// Rows, width of hidden states and classes. Each is below and above a task's rows, a chunk's rows
// and a block's columns; one case has all of them above.
struct Size {
  int64_t rows, dim, classes;
};
const Size kSizes[] = {{0, 3, 5},     {1, 1, 1},       {3, 17, 2},     {17, 64, 65},
                       {65, 33, 513}, {130, 20, 1100}, {1100, 16, 70}, {1100, 130, 600}};

template <class Sum, class Hidden>
struct Result {
  Array<Sum> loss;
  Array<Hidden> grad_hidden;
  Array<Sum> grad_weight, grad_bias;
};

template <class Sum, class Hidden>
void ExpectSameResults(const Result<Sum, Hidden>& a, const Result<Sum, Hidden>& b) {
  ExpectSameBits(a.loss, b.loss);
  ExpectSameBits(a.grad_hidden, b.grad_hidden);
  ExpectSameBits(a.grad_weight, b.grad_weight);
  ExpectSameBits(a.grad_bias, b.grad_bias);
}

template <class T>
struct Problem {
  Array<T> hidden, weight;
  bool table;
  Array<int64_t> target;
};

Problem<float> RandomProblem(const Size& s, bool table) {
  Problem<float> p{RandomArray<float>({s.rows, s.dim}, 1),
                   RandomArray<float>(table ? Shape{s.classes, s.dim} : Shape{s.dim, s.classes}, 2),
                   table, Array<int64_t>({s.rows})};
  for (int64_t r = 0; r < s.rows; ++r)
    p.target[r] = static_cast<int64_t>(RandomBelow({3, 4}, 0, static_cast<uint64_t>(r), s.classes));
  return p;
}

struct Wanted {
  bool hidden, weight, bias;
};
constexpr Wanted kAll{true, true, true}, kNone{false, false, false};

// Sum is the type of losses and of the weight's gradient, Hidden that of the hidden states'
// gradient. Gradients that nobody wants stay 0.
template <class Sum, class Hidden, class T>
Result<Sum, Hidden> Solve(Problem<T> p, Array<Sum> bias, const Wanted& wanted, int num_threads) {
  TestStream stream(num_threads);
  Result<Sum, Hidden> result{Array<Sum>(p.target.shape), Array<Hidden>(p.hidden.shape),
                             Array<Sum>(p.weight.shape), Array<Sum>(bias.shape)};
  LinearCrossEntropyArgs args{.hidden = p.hidden,
                              .weight = p.weight,
                              .weight_is_table = p.table,
                              .bias = bias,
                              .target = p.target,
                              .loss = result.loss};
  if (wanted.hidden) args.grad_hidden = result.grad_hidden;
  if (wanted.weight) args.grad_weight = result.grad_weight;
  if (wanted.bias) args.grad_bias = result.grad_bias;
  LinearCrossEntropy(args, stream);
  return result;
}

template <class T, class Convert>
Problem<double> Wide(const Problem<T>& p, const Convert& convert) {
  return {convert(p.hidden), convert(p.weight), p.table, p.target};
}

class LinearCrossEntropyTest : public testing::TestWithParam<bool> {};  // the weight is a table

TEST_P(LinearCrossEntropyTest, F32MatchesF64ForEverySizeAndThreadCount) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(testing::Message()
                 << s.rows << " rows, dim " << s.dim << ", " << s.classes << " classes");
    const Problem<float> p = RandomProblem(s, GetParam());
    const Array<float> bias = RandomArray<float>({s.classes}, 5);
    const auto wanted =
        Solve<double, double>(Wide(p, Converted<double, float>), Converted<double>(bias), kAll, 1);
    const auto one = Solve<float, float>(p, bias, kAll, 1);
    ExpectNear(one.loss, wanted.loss, 3e-6);
    ExpectNear(one.grad_hidden, wanted.grad_hidden, 3e-6);
    ExpectNear(one.grad_weight, wanted.grad_weight, 1e-5);
    ExpectNear(one.grad_bias, wanted.grad_bias, 1e-5);
    ExpectSameResults(one, Solve<float, float>(p, bias, kAll, 3));
    Result<float, float> narrow;  // without AMX, in whose pieces `one` may have been computed
    ForEachInstructionSet([&](InstructionSet set) {
      const auto found = Solve<float, float>(p, bias, kAll, 1);
      if (set == InstructionSet::BASELINE) narrow = found;
      ExpectSameResults(found, narrow);
    });
    ExpectNear(narrow.loss, wanted.loss, 3e-6);
    ExpectNear(narrow.grad_hidden, wanted.grad_hidden, 3e-6);
    ExpectNear(narrow.grad_weight, wanted.grad_weight, 1e-5);
    ExpectNear(narrow.grad_bias, wanted.grad_bias, 1e-5);
  }
}

// A logit's gradient lies in [-1, 1] and is rounded to 8 bits: its relative error is 2^-8.
// Sums of `count` such gradients times values below 1 are off by at most 2^-8 of the sum of
// absolute values. Typically they are off by 2^-8 of its root mean square.
TEST_P(LinearCrossEntropyTest, Bf16MatchesF64WithinTheRoundingOfTheLogitsGradients) {
  for (const Size& s : kSizes) {
    SCOPED_TRACE(testing::Message()
                 << s.rows << " rows, dim " << s.dim << ", " << s.classes << " classes");
    const Problem<float> f32 = RandomProblem(s, GetParam());
    const Problem<BFloat16> p{Rounded(f32.hidden), Rounded(f32.weight), f32.table, f32.target};
    const Array<float> bias = RandomArray<float>({s.classes}, 5);
    const auto wanted = Solve<double, double>(Wide(p, Exact), Converted<double>(bias), kAll, 1);
    const auto one = Solve<float, BFloat16>(p, bias, kAll, 1);
    ExpectNear(one.loss, wanted.loss, 3e-6);  // logits are f32
    // Absolute gradients of a row's logits sum to at most 2, and those of a column's logits to at
    // most rows.
    const double rounding = 0x1p-8;
    ExpectNear(Exact(one.grad_hidden), wanted.grad_hidden, 2 * rounding + rounding);
    const double column_tolerance =
        rounding *
        std::max<double>(1, static_cast<double>(s.rows) * 2 / static_cast<double>(s.classes));
    ExpectNear(one.grad_weight, wanted.grad_weight, column_tolerance);
    ExpectNear(one.grad_bias, wanted.grad_bias, column_tolerance);
    ExpectSameResults(one, Solve<float, BFloat16>(p, bias, kAll, 3));
    ForEachInstructionSet(
        [&](InstructionSet) { ExpectSameResults(one, Solve<float, BFloat16>(p, bias, kAll, 1)); });
    ExpectSameBits(one.grad_hidden, Rounded(Solve<float, float>(p, bias, kAll, 1).grad_hidden));
  }
}

// Each gradient has the same bits with and without the other gradients.
TEST_P(LinearCrossEntropyTest, SomeGradientsAloneEqualThoseOfAll) {
  for (const Size& s : {Size{130, 20, 600}, Size{1100, 140, 70}}) {
    const Problem<float> p = RandomProblem(s, GetParam());
    const Problem<BFloat16> halves{Rounded(p.hidden), Rounded(p.weight), p.table, p.target};
    const Array<float> bias = RandomArray<float>({s.classes}, 5);
    for (const Wanted& some :
         {kNone, Wanted{false, false, true}, Wanted{false, true, false}, Wanted{true, false, false},
          Wanted{false, true, true}, Wanted{true, false, true}}) {
      SCOPED_TRACE(testing::Message()
                   << s.rows << " rows, " << some.hidden << some.weight << some.bias);
      const auto check = [&](const auto& all, const auto& found) {
        auto left = all;
        if (!some.hidden) left.grad_hidden = decltype(left.grad_hidden)(p.hidden.shape);
        if (!some.weight) left.grad_weight = Array<float>(p.weight.shape);
        if (!some.bias) left.grad_bias = Array<float>(bias.shape);
        ExpectSameResults(found, left);
      };
      check(Solve<float, float>(p, bias, kAll, 1), Solve<float, float>(p, bias, some, 1));
      check(Solve<float, BFloat16>(halves, bias, kAll, 1),
            Solve<float, BFloat16>(halves, bias, some, 1));
    }
  }
}

TEST_P(LinearCrossEntropyTest, GradientsMatchDifferences) {
  Problem<double> p = Wide(RandomProblem({5, 3, 4}, GetParam()), Converted<double, float>);
  Array<double> bias = RandomArray<double>({4}, 5), ones({5}, 1.0);
  const auto found = Solve<double, double>(p, bias, kAll, 1);
  const auto losses = [&](Array<double>& loss) {
    loss = Solve<double, double>(p, bias, kNone, 1).loss;
  };
  ExpectNear(found.grad_hidden, NumericGradient(p.hidden, ones, losses), 1e-8);
  ExpectNear(found.grad_weight, NumericGradient(p.weight, ones, losses), 1e-8);
  ExpectNear(found.grad_bias, NumericGradient(bias, ones, losses), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(Weights, LinearCrossEntropyTest, testing::Bool());

TEST(LinearCrossEntropyLossTest, WithoutBiasEqualsTheTwoSteps) {
  const Problem<float> p = RandomProblem({40, 24, 300}, false);
  Problem<float> q = p;
  Array<float> logits({40, 300}), loss({40});
  TestStream stream;
  Gemm({.a = q.hidden, .b = q.weight, .c = logits}, stream);
  CrossEntropy({.logits = logits, .target = q.target, .loss = loss, .grad = {}}, stream);
  Array<float> found({40});
  LinearCrossEntropy({.hidden = q.hidden, .weight = q.weight, .target = q.target, .loss = found},
                     stream);
  ExpectNear(found, loss, 2e-6);
}

TEST(LinearCrossEntropyLossTest, LargeLogitsDoNotOverflow) {
  Array<float> hidden({2, 1}), weight({1, 3}), loss({2});
  Array<int64_t> target({2});
  hidden.values = {1, 1, 0};
  weight.values = {1e4f, -1e4f, 0, 0};
  target.values = {0, 1, 0};
  TestStream stream;
  LinearCrossEntropy({.hidden = hidden, .weight = weight, .target = target, .loss = loss}, stream);
  EXPECT_EQ(loss[0], 0.0f);
  EXPECT_EQ(loss[1], 2e4f);
}

TEST(LinearCrossEntropyLossTest, TargetOutsideTheClassesDies) {
  Problem<float> p = RandomProblem({3, 2, 4}, false);
  p.target[1] = 4;
  Array<float> loss({3});
  TestStream stream;
  EXPECT_DEATH(
      LinearCrossEntropy({.hidden = p.hidden, .weight = p.weight, .target = p.target, .loss = loss},
                         stream),
      "target 4 of row 1, classes 4");
}

// Ranks that hold some classes each, and reduce statistics, get the whole loss and its gradients.
template <class T>
void ExpectPartsGiveTheWhole(const Size& size, bool table, const std::vector<int64_t>& cuts,
                             double tolerance) {
  SCOPED_TRACE(testing::Message() << size.rows << " rows, " << size.classes << " classes, "
                                  << cuts.size() + 1 << " parts");
  Problem<float> random = RandomProblem(size, table);
  Array<T> hidden = Converted<T>(random.hidden), weight = Converted<T>(random.weight),
           bias = Converted<T>(RandomArray<float>({size.classes}, 3));
  TestStream stream(2);
  const Shape rows{size.rows};
  Array<T> loss(rows), grad_hidden(hidden.shape), grad_weight(weight.shape), grad_bias(bias.shape);
  LinearCrossEntropy({.hidden = hidden.view(),
                      .weight = weight.view(),
                      .weight_is_table = table,
                      .bias = bias.view(),
                      .target = random.target.view(),
                      .loss = loss.view(),
                      .grad_hidden = grad_hidden.view(),
                      .grad_weight = grad_weight.view(),
                      .grad_bias = grad_bias.view()},
                     stream);
  std::vector<int64_t> bounds = {0};
  bounds.insert(bounds.end(), cuts.begin(), cuts.end());
  bounds.push_back(size.classes);
  struct Part {
    Array<T> weight, bias, log_sum, target_logit;
  };
  std::vector<Part> parts;
  const auto args_of = [&](size_t p) {
    return LinearClassesArgs{.hidden = hidden.view(),
                             .weight = parts[p].weight.view(),
                             .weight_is_table = table,
                             .bias = parts[p].bias.view(),
                             .target = random.target.view(),
                             .first_class = bounds[p]};
  };
  for (size_t p = 0; p + 1 < bounds.size(); ++p) {
    const int64_t first = bounds[p], classes = bounds[p + 1] - first;
    Part& part = parts.emplace_back(
        Part{Array<T>(table ? Shape{classes, size.dim} : Shape{size.dim, classes}),
             Array<T>({classes}), Array<T>(rows), Array<T>(rows)});
    for (int64_t c = 0; c < classes; ++c) {
      part.bias[c] = bias[first + c];
      for (int64_t d = 0; d < size.dim; ++d) {
        if (table)
          part.weight[c * size.dim + d] = weight[(first + c) * size.dim + d];
        else
          part.weight[d * classes + c] = weight[d * size.classes + first + c];
      }
    }
    LinearLogSums({args_of(p), part.log_sum.view(), part.target_logit.view()}, stream);
  }
  Array<T> log_sum(rows);
  for (int64_t r = 0; r < size.rows; ++r) {
    double sum = 0, target = 0;
    for (const Part& part : parts) {
      sum += std::exp(static_cast<double>(part.log_sum[r]));
      target += static_cast<double>(part.target_logit[r]);
    }
    log_sum[r] = static_cast<T>(std::log(sum));
    EXPECT_NEAR(log_sum[r] - target, loss[r], tolerance);
  }
  Array<double> sum_hidden(hidden.shape);
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t first = bounds[p], classes = bounds[p + 1] - first;
    Array<T> of_hidden(hidden.shape), of_weight(parts[p].weight.shape), of_bias({classes});
    LinearCrossEntropyGradients(
        {args_of(p), log_sum.view(), of_hidden.view(), of_weight.view(), of_bias.view()}, stream);
    for (int64_t i = 0; i < hidden.shape.num_elements(); ++i) sum_hidden[i] += of_hidden[i];
    for (int64_t c = 0; c < classes; ++c) {
      EXPECT_NEAR(of_bias[c], grad_bias[first + c], tolerance * 30);
      for (int64_t d = 0; d < size.dim; ++d) {
        const T here = table ? of_weight[c * size.dim + d] : of_weight[d * classes + c];
        const T whole = table ? grad_weight[(first + c) * size.dim + d]
                              : grad_weight[d * size.classes + first + c];
        ASSERT_NEAR(here, whole, tolerance * 30) << "class " << first + c;
      }
    }
  }
  for (int64_t i = 0; i < hidden.shape.num_elements(); ++i)
    ASSERT_NEAR(sum_hidden[i], grad_hidden[i], tolerance * 10);
}

TEST(LinearCrossEntropyTest, PartsOfTheClassesGiveTheWholeLossAndItsGradients) {
  for (const bool table : {false, true}) {
    for (const Size& size : {Size{17, 64, 65}, Size{130, 20, 1100}, Size{3, 17, 5}}) {
      const std::vector<std::vector<int64_t>> cuts = {
          {}, {size.classes / 2}, {1, 2, size.classes - 1}};
      for (const auto& cut : cuts) {
        ExpectPartsGiveTheWhole<float>(size, table, cut, 3e-6);
        ExpectPartsGiveTheWhole<double>(size, table, cut, 1e-13);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
