#include "kernels/cpu/matmul/split_matmul.h"

#include <bit>
#include <limits>

#include "kernels/gemm.h"
#include "kernels/loss.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"

namespace tandem::kernels {
namespace {

// Numbers of both signs and of sizes from 2^-20 to 2^20.
Array<float> WideNumbers(Shape shape, uint64_t seed) {
  Array<float> x = RandomArray<float>(shape, seed);
  for (int64_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(
        x[i], static_cast<int>(RandomBelow({seed, 9}, 0, static_cast<uint64_t>(i), 41)) - 20);
  return x;
}

constexpr uint16_t kUnwritten = 0x5a5a;

// Returns the index at which SplitOperand stores a piece of a column's element, as its header says.
int64_t PlaceOf(SplitSide side, int64_t column, int64_t d, int64_t piece, int64_t depth) {
  const int64_t group = column / 32 * (RoundUp(depth, 32) / 32) + d / 32, half = column % 32 / 16,
                i = column % 16, pair = d % 32 / 2;
  const int64_t word = side == SplitSide::A ? i * 16 + pair : pair * 16 + i;
  return ((group * 3 + piece) * 2 + half) * 512 + 2 * word + d % 2;
}

TEST(SplitOperandTest, PiecesAreTheNumberAndLieWhereTheHeaderSays) {
  for (const auto& [k, n, depth] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                    {3, 17, 40},
                                    {32, 32, 32},
                                    {65, 70, 65},
                                    {64, 96, 64}}) {
    for (const bool transposed : {false, true}) {
      for (const SplitSide side : {SplitSide::A, SplitSide::B}) {
        SCOPED_TRACE(testing::Message()
                     << k << " x " << n << " to " << depth << (transposed ? " transposed" : "")
                     << ", side " << static_cast<int>(side));
        const int64_t stride = (transposed ? k : n) + 3, first = n > 16 ? 5 : 0, count = n - first;
        const Array<float> x = WideNumbers(Shape{transposed ? n : k, stride}, 1);
        ForEachInstructionSet([&](InstructionSet) {
          std::vector<BFloat16> pieces(static_cast<size_t>(SplitSize(count, depth)) + 512,
                                       BFloat16{kUnwritten});
          SplitOperand(side, {x.values.data(), k, n, stride, transposed}, first, count, depth,
                       pieces.data());
          for (int64_t c = 0; c < RoundUp(count, 32); ++c) {
            for (int64_t d = 0; d < RoundUp(depth, 32); ++d) {
              float sum = 0, wanted = 0, last = std::numeric_limits<float>::infinity();
              if (c < count && d < k)
                wanted = x[transposed ? (first + c) * stride + d : d * stride + first + c];
              for (int64_t p = 2; p >= 0; --p)
                sum += ToFloat(pieces[static_cast<size_t>(PlaceOf(side, c, d, p, depth))]);
              for (int64_t p = 0; p < 3;
                   ++p) {  // each at most half of the last bit of the one before
                const float piece =
                    std::fabs(ToFloat(pieces[static_cast<size_t>(PlaceOf(side, c, d, p, depth))]));
                ASSERT_LE(piece, last * 0x1p-8f) << c << ", " << d;
                last = piece;
              }
              ASSERT_EQ(sum, wanted) << c << ", " << d;
            }
          }
          for (size_t i = static_cast<size_t>(SplitSize(count, depth)); i < pieces.size(); ++i)
            ASSERT_EQ(pieces[i].bits, kUnwritten);
        });
      }
    }
  }
}

// Runs `body` on the limit's tiles: AMX tiles if the processor has them, and plain tiles.
template <class Body>
void ForEachKindOfTiles(const Body& body) {
  for (InstructionSet set : {InstructionSet::AMX, InstructionSet::PLAIN_TILES}) {
    const InstructionSetLimit limit(set);
    if (!UsesSplitProducts(1024, 1024)) continue;
    SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(set));
    body(set);
  }
}

struct Case {
  int64_t m, n, k;
};

// The exact product of a [m, k] and b [k, n], and its sums of absolute terms.
struct Exact {
  Array<double> product, terms;

  Exact(const Case& s, const Array<float>& a, const Array<float>& b)
      : product({s.m, s.n}), terms({s.m, s.n}) {
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t d = 0; d < s.k; ++d) {
        const double factor = a[i * s.k + d];
        for (int64_t j = 0; j < s.n; ++j) {
          const double term = factor * b[d * s.n + j];
          product[i * s.n + j] += term;
          terms[i * s.n + j] += std::fabs(term);
        }
      }
    }
  }
};

Array<float> Transposed(const Array<float>& x) {
  Array<float> y({x.shape[1], x.shape[0]});
  for (int64_t r = 0; r < x.shape[0]; ++r) {
    for (int64_t c = 0; c < x.shape[1]; ++c) y[c * x.shape[0] + r] = x[r * x.shape[1] + c];
  }
  return y;
}

// Returns the root mean square of the errors, each relative to its element's sum of absolute terms.
double RelativeError(const Array<float>& found, const Array<double>& wanted,
                     const Array<double>& terms) {
  double sum = 0;
  for (int64_t i = 0; i < wanted.size(); ++i)
    sum += std::pow((static_cast<double>(found[i]) - wanted[i]) / terms[i], 2);
  return std::sqrt(sum / static_cast<double>(wanted.size()));
}

// The error stays below that of a chain of multiply-adds, which f32 promises, for more than one
// distribution.
// Without the product of the middle pieces, the smallest one computed, the error would reach it.
TEST(SplitProductTest, ErrorIsBelowThatOfMultiplyAdds) {
  for (const int kind : {0, 1, 2}) {
    for (const Case& s : {Case{33, 130, 128}, Case{40, 160, 700}}) {
      SCOPED_TRACE(testing::Message()
                   << "numbers " << kind << ", " << s.m << " x " << s.n << " x " << s.k);
      Array<float> a = RandomArray<float>({s.m, s.k}, 1), b = RandomArray<float>({s.k, s.n}, 2);
      if (kind == 1) a = WideNumbers(a.shape, 1);
      if (kind == 2) {
        for (Array<float>* x : {&a, &b}) {
          for (float& value : x->values) value = std::fabs(value);
        }
      }
      const Exact exact(s, a, b);
      Array<float> chain({s.m, s.n});
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < s.n; ++j) {
          for (int64_t d = 0; d < s.k; ++d)
            chain[i * s.n + j] = std::fmaf(a[i * s.k + d], b[d * s.n + j], chain[i * s.n + j]);
        }
      }
      const InstructionSetLimit limit(InstructionSet::AMX);
      if (!UsesSplitProducts(s.n, s.k)) GTEST_SKIP() << "the processor has no AMX";
      TestStream stream;
      Array<float> found({s.m, s.n});
      Gemm({.a = a, .b = b, .c = found}, stream);
      const auto error = [&](const Array<float>& x) {
        return RelativeError(x, exact.product, exact.terms);
      };
      EXPECT_LT(error(found), 0.7 * error(chain));
      EXPECT_GT(error(found), 0);
    }
  }
}

// Every layout in every cut except wide weights' gradients, with biases and old sums, remainders of
// all groups, and both kinds of tiles.
TEST(SplitProductTest, GemmMatchesTheExactProduct) {
  for (const Case& s :
       {Case{1, 128, 128}, Case{17, 1030, 130}, Case{70, 129, 160}, Case{200, 140, 192},
        Case{40, 130, 1030}, Case{130, 130, 2100}, Case{140, 260, 135}}) {
    const Array<float> rows = RandomArray<float>({s.m, s.k}, 1),
                       columns = RandomArray<float>({s.k, s.n}, 2),
                       old = RandomArray<float>({s.m, s.n}, 3), bias = RandomArray<float>({s.n}, 4);
    const Exact exact(s, rows, columns);
    for (const bool ta : {false, true}) {
      if (ta && s.m < 128) continue;  // not split
      for (const bool tb : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << s.m << " x " << s.n << " x " << s.k << ", transposed " << ta << tb);
        const Array<float> a = ta ? Transposed(rows) : rows, b = tb ? Transposed(columns) : columns;
        ForEachKindOfTiles([&](InstructionSet) {
          for (const bool plain : {false, true}) {
            if (plain && (ta || tb)) continue;  // what is stored does not ask for the layout
            TestStream stream;
            Array<float> left = a, right = b, sums = bias, c = old;
            GemmArgs args{.a = left,
                          .b = right,
                          .c = c,
                          .transpose_a = ta,
                          .transpose_b = tb,
                          .accumulate = !plain};
            if (!plain) args.bias = sums;
            Gemm(args, stream);
            for (int64_t i = 0; i < c.size(); ++i) {
              const double wanted = exact.product[i] + (plain ? 0.0f : old[i] + bias[i % s.n]);
              ASSERT_LE(std::fabs(c[i] - wanted), 0x1p-24 * (4 * exact.terms[i] + 4))
                  << "element " << i << ": " << c[i] << ", wanted " << wanted;
            }
          }
        });
      }
    }
  }
}

TEST(SplitProductTest, LossMatchesF64) {
  const int64_t rows = 300, dim = 130, classes = 600;
  for (const bool table : {false, true}) {
    const Array<float> hidden = RandomArray<float>({rows, dim}, 1),
                       bias = RandomArray<float>({classes}, 3);
    const Array<float> weight =
        RandomArray<float>(table ? Shape{classes, dim} : Shape{dim, classes}, 2);
    Array<int64_t> target({rows});
    for (int64_t r = 0; r < rows; ++r) target[r] = r * 7 % classes;
    const auto solve = [&]<class T>(T, Array<T>& loss, Array<T>& grad_hidden,
                                    Array<T>& grad_weight) {
      Array<T> x = Converted<T>(hidden), w = Converted<T>(weight), b = Converted<T>(bias);
      loss = Array<T>({rows}), grad_hidden = Array<T>(hidden.shape),
      grad_weight = Array<T>(weight.shape);
      TestStream stream;
      LinearCrossEntropy({.hidden = x,
                          .weight = w,
                          .weight_is_table = table,
                          .bias = b,
                          .target = target,
                          .loss = loss,
                          .grad_hidden = grad_hidden,
                          .grad_weight = grad_weight},
                         stream);
    };
    Array<double> loss64, hidden64, weight64;
    solve(0.0, loss64, hidden64, weight64);
    ForEachKindOfTiles([&](InstructionSet) {
      Array<float> loss, grad_hidden, grad_weight;
      solve(0.0f, loss, grad_hidden, grad_weight);
      ExpectNear(loss, loss64, 3e-6);
      ExpectNear(grad_hidden, hidden64, 3e-6);
      ExpectNear(grad_weight, weight64, 1e-5);
    });
  }
}

// Each row depends on itself alone: a NaN or infinity spoils no other row and does not show there.
TEST(SplitProductTest, WhatIsNoNumberSpoilsItsRowAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  const Array<float> clean = RandomArray<float>({70, 128}, 1),
                     b = RandomArray<float>({128, 130}, 2);
  ForEachKindOfTiles([&](InstructionSet) {
    TestStream stream;
    const auto product = [&](Array<float> a) {
      Array<float> right = b, c({a.shape[0], 130});
      Gemm({.a = a, .b = right, .c = c}, stream);
      return c;
    };
    Array<float> spoilt = clean;
    spoilt[3 * 128 + 5] = nan, spoilt[40 * 128 + 127] = infinity, spoilt[50 * 128] = -nan;
    const Array<float> wanted = product(clean), found = product(spoilt);
    for (int64_t i = 0; i < 70; ++i) {
      for (int64_t j = 0; j < 130; ++j) {
        const bool is_spoilt = i == 3 || i == 40 || i == 50;
        ASSERT_EQ(std::isfinite(found[i * 130 + j]), !is_spoilt) << i << ", " << j;
        ASSERT_TRUE(is_spoilt || found[i * 130 + j] == wanted[i * 130 + j]) << i << ", " << j;
      }
    }
    Array<float> few({33, 128});
    std::copy_n(clean.values.begin(), few.size(), few.values.begin());
    const Array<float> first = product(few);
    for (int64_t i = 0; i < first.size(); ++i) ASSERT_EQ(first[i], wanted[i]) << i;
  });
}

}  // namespace
}  // namespace tandem::kernels
