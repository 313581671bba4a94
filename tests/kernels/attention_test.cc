#include "kernels/attention.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/amx.h"
#include "tests/kernels/bf16_arrays.h"
#include "tests/kernels/instruction_sets.h"
#include "tests/kernels/random_arrays.h"

namespace tandem::kernels {
namespace {

struct Setting {
  std::vector<int64_t> lengths;
  int64_t heads = 2, depth = 5;
  bool causal = true;
  float dropout = 0;
  bool scattered = false;  // places of the tokens in no order
};

constexpr int64_t kMaxLength = 203;

// One attention call with its arrays. q, k, v and their gradients are the thirds of [T, 3 H D] arrays.
template <class T>
struct AttentionCase {
  Setting s;
  int64_t num_tokens = 0;
  Array<int64_t> offsets, row_index;
  Array<T> qkv, output, log_sum_exp, grad_output, grad_qkv;

  explicit AttentionCase(const Setting& setting) : s(setting) {
    offsets = Array<int64_t>({static_cast<int64_t>(s.lengths.size()) + 1});
    std::vector<int64_t> rows;
    for (size_t b = 0; b < s.lengths.size(); ++b) {
      for (int64_t t = 0; t < s.lengths[b]; ++t) {
        const int64_t place = s.scattered ? (t * 7 + 3) % kMaxLength : t + static_cast<int64_t>(b) % 3;
        rows.push_back((static_cast<int64_t>(b) + 4) * kMaxLength + place);
      }
      offsets[static_cast<int64_t>(b) + 1] = num_tokens += s.lengths[b];
    }
    row_index = Array<int64_t>({num_tokens});
    std::copy(rows.begin(), rows.end(), row_index.values.begin());
    const Shape wide{num_tokens, 3 * s.heads * s.depth}, narrow{num_tokens, s.heads, s.depth};
    qkv = RandomArray<T>(wide, 1, 2);
    grad_qkv = Array<T>(wide, T(77));
    output = Array<T>(narrow);
    grad_output = RandomArray<T>(narrow, 2);
    log_sum_exp = Array<T>({num_tokens, s.heads});
  }
  template <class S>
  ArrayView Third(Array<S>& a, int64_t i) {
    const int64_t width = s.heads * s.depth;
    return ArrayView(a.values.data() + i * width, DTypeOf<S>(), {num_tokens, s.heads, s.depth}, {3 * width, s.depth, 1});
  }
  template <class S>
  AttentionArgs Common(Array<S>& from) {
    return {Third(from, 0), Third(from, 1), Third(from, 2), offsets, row_index, kMaxLength, s.causal,
            1 / std::sqrt(static_cast<double>(s.depth)), s.dropout, {21, 22}, 23};
  }
  void Forward(Stream& stream) { AttentionForward({Common(qkv), output, log_sum_exp}, stream); }
  void Backward(Stream& stream) {
    AttentionBackward({Common(qkv), output, log_sum_exp, grad_output, Third(grad_qkv, 0), Third(grad_qkv, 1), Third(grad_qkv, 2)},
                      stream);
  }
  void Both(Stream& stream) {
    Forward(stream);
    Backward(stream);
  }
  double At(int64_t part, int64_t token, int64_t head, int64_t d) const {
    return static_cast<double>(qkv[(token * 3 + part) * s.heads * s.depth + head * s.depth + d]);
  }
};

// The definition, one score matrix per sequence and head.
Array<double> Naive(const AttentionCase<double>& run) {
  const Setting& s = run.s;
  Array<double> output(run.output.shape);
  for (size_t b = 0; b < s.lengths.size(); ++b) {
    const int64_t begin = run.offsets[static_cast<int64_t>(b)], end = begin + s.lengths[b];
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = begin; i < end; ++i) {
        std::vector<double> weight;
        double sum = 0;
        for (int64_t j = begin; j < (s.causal ? i + 1 : end); ++j) {
          double score = 0;
          for (int64_t d = 0; d < s.depth; ++d) score += run.At(0, i, h, d) * run.At(1, j, h, d);
          weight.push_back(std::exp(score / std::sqrt(static_cast<double>(s.depth))));
          sum += weight.back();
        }
        for (size_t j = 0; j < weight.size(); ++j) {
          const int64_t key = begin + static_cast<int64_t>(j);
          const uint64_t element =
              static_cast<uint64_t>((run.row_index[i] * s.heads + h) * kMaxLength + run.row_index[key] % kMaxLength);
          if (DropoutBits({21, 22}, 23, element) < DropThreshold(s.dropout)) continue;
          const double probability = weight[j] / sum * KeepScale(DropThreshold(s.dropout));
          for (int64_t d = 0; d < s.depth; ++d) output[(i * s.heads + h) * s.depth + d] += probability * run.At(2, key, h, d);
        }
      }
    }
  }
  return output;
}

const Setting kSettings[] = {
    {{1}, 1, 1, true, 0, false},
    {{0, 3, 0, 17, 1, 0}, 2, 5, true, 0, false},
    {{33, 64, 65, 2}, 2, 16, true, 0.3f, false},
    {{33, 64, 65, 2}, 3, 17, false, 0.5f, false},
    {{31, 200}, 1, 32, true, 0.2f, true},
    {{100}, 2, 64, false, 0, false},
    {{130, 16, 64, 70}, 1, 80, true, 0, false},
    {{}, 2, 4, true, 0.5f, false},
};

TEST(AttentionTest, MatchesTheNaiveFormulaWithItsDropoutMask) {
  TestStream stream(2);
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(testing::Message() << setting.lengths.size() << " sequences, depth " << setting.depth);
    AttentionCase<double> reference(setting);
    AttentionCase<float> run(setting);
    reference.qkv = Converted<double>(run.qkv);
    reference.Forward(stream);
    run.Forward(stream);
    ExpectNear(reference.output, Naive(reference), 1e-12);
    ExpectNear(run.output, reference.output, 3e-6);
    ExpectNear(run.log_sum_exp, reference.log_sum_exp, 3e-6);
  }
}

TEST(AttentionTest, F32GradientsMatchF64AndDoNotDependOnThreads) {
  for (const Setting& setting : kSettings) {
    AttentionCase<float> one(setting), three(setting);
    AttentionCase<double> reference(setting);
    reference.qkv = Converted<double>(one.qkv);
    reference.grad_output = Converted<double>(one.grad_output);
    TestStream single(1), triple(3);
    one.Both(single);
    three.Both(triple);
    reference.Both(single);
    ExpectNear(one.grad_qkv, reference.grad_qkv, 1e-5);
    ExpectSameBits(one.output, three.output);
    ExpectSameBits(one.log_sum_exp, three.log_sum_exp);
    ExpectSameBits(one.grad_qkv, three.grad_qkv);
  }
}

TEST(AttentionTest, BitsAreTheSameInEveryInstructionSet) {
  TestStream stream;
  for (const Setting& setting : kSettings) {
    AttentionCase<float> wanted(setting);
    wanted.Both(stream);
    ForEachInstructionSet([&](InstructionSet) {
      AttentionCase<float> run(setting);
      run.Both(stream);
      ExpectSameBits(run.output, wanted.output);
      ExpectSameBits(run.log_sum_exp, wanted.log_sum_exp);
      ExpectSameBits(run.grad_qkv, wanted.grad_qkv);
    });
  }
}

// A forward and a backward call on bf16 arrays that hold the values of `exact`, rounded.
struct Bf16Run {
  Array<BFloat16> qkv, grad_output, output, grad_qkv;
  Array<float> log_sum_exp;

  Bf16Run(AttentionCase<float>& exact, Stream& stream)
      : qkv(Rounded(exact.qkv)), grad_output(Rounded(exact.grad_output)), output(exact.output.shape), grad_qkv(exact.qkv.shape),
        log_sum_exp(exact.log_sum_exp.shape) {
    AttentionForward({exact.Common(qkv), output, log_sum_exp}, stream);
    AttentionBackward({exact.Common(qkv), output, log_sum_exp, grad_output, exact.Third(grad_qkv, 0), exact.Third(grad_qkv, 1),
                       exact.Third(grad_qkv, 2)},
                      stream);
  }
};

// bf16 is storage: in vectors the results are those of f32, rounded.
TEST(AttentionTest, Bf16GivesTheRoundedResultsOfF32) {
  TestStream stream;
  for (const Setting& setting : kSettings) {
    ForEachInstructionSet([&](InstructionSet) {
      AttentionCase<float> exact(setting);
      const Bf16Run run(exact, stream);
      exact.qkv = Converted<float>(Exact(run.qkv));
      exact.grad_output = Converted<float>(Exact(run.grad_output));
      exact.Forward(stream);
      ExpectSameBits(run.log_sum_exp, exact.log_sum_exp);
      ExpectSameBits(run.output, Rounded(exact.output));
      exact.output = Converted<float>(Exact(run.output));
      exact.Backward(stream);
      ExpectSameBits(run.grad_qkv, Rounded(exact.grad_qkv));
    });
  }
}

// |x - y| / |y|.
double RelativeDistance(const Array<BFloat16>& x, const Array<BFloat16>& y) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    difference += std::pow(ToFloat(x[i]) - ToFloat(y[i]), 2);
    size += std::pow(ToFloat(y[i]), 2);
  }
  return std::sqrt(difference / size);
}

const Setting kTileSettings[] = {{{33, 0, 64, 65, 2, 1}, 2, 32, true, 0.3f, false}, {{33, 64, 65, 2}, 3, 64, false, 0.5f, false},
                                 {{31, 200}, 1, 96, true, 0.2f, true}, {{600, 1100}, 1, 32, true, 0, false}};

// All that lies around the tiles, on processors without them.
TEST(AttentionTest, PlainTilesAreCloseToVectors) {
  if (WidestInstructionSet() < InstructionSet::AVX512) GTEST_SKIP() << "tiles come with AVX-512, whose width the passes around them have";
  for (const Setting& setting : kTileSettings) {
    SCOPED_TRACE(testing::Message() << setting.lengths.size() << " sequences, depth " << setting.depth);
    AttentionCase<float> exact(setting);
    TestStream one(1);
    const auto run = [&](InstructionSet set) {
      const InstructionSetLimit limit(set);
      return Bf16Run(exact, one);
    };
    const Bf16Run tiles = run(InstructionSet::PLAIN_TILES), vectors = run(InstructionSet::AVX512);
    EXPECT_LT(RelativeDistance(tiles.output, vectors.output), 4e-3);
    EXPECT_LT(RelativeDistance(tiles.grad_qkv, vectors.grad_qkv), 8e-3);
    EXPECT_GT(RelativeDistance(tiles.grad_qkv, vectors.grad_qkv), 0);
  }
}

TEST(AttentionTest, TilesAreCloseToVectorsAndDoNotDependOnThreads) {
  if (!HasAmx()) GTEST_SKIP() << "the processor has no AMX";
  for (const Setting& setting : kTileSettings) {
    SCOPED_TRACE(testing::Message() << setting.lengths.size() << " sequences, depth " << setting.depth);
    AttentionCase<float> exact(setting);
    TestStream one(1), three(3);
    const Bf16Run tiles(exact, one), again(exact, three);
    ExpectSameBits(again.output, tiles.output);
    ExpectSameBits(again.log_sum_exp, tiles.log_sum_exp);
    ExpectSameBits(again.grad_qkv, tiles.grad_qkv);
    const InstructionSetLimit limit(InstructionSet::AVX512);
    const Bf16Run vectors(exact, one);
    EXPECT_LT(RelativeDistance(tiles.output, vectors.output), 4e-3);  // half a unit of bf16 is 2e-3
    EXPECT_LT(RelativeDistance(tiles.grad_qkv, vectors.grad_qkv), 8e-3);
    EXPECT_GT(RelativeDistance(tiles.grad_qkv, vectors.grad_qkv), 0);
  }
}

// More keys than a block of scores holds, with keys in several blocks out of sight of a block of queries.
TEST(AttentionTest, LongSequencesMatchF64) {
  TestStream stream(2);
  for (const Setting& setting : {Setting{{1100}, 1, 8, true, 0, false}, Setting{{600, 517}, 1, 8, false, 0, false}}) {
    AttentionCase<float> run(setting);
    AttentionCase<double> reference(setting);
    reference.qkv = Converted<double>(run.qkv);
    reference.grad_output = Converted<double>(run.grad_output);
    run.Both(stream);
    reference.Both(stream);
    ExpectNear(reference.output, Naive(reference), 1e-12);
    ExpectNear(run.output, reference.output, 3e-6);
    ExpectNear(run.grad_qkv, reference.grad_qkv, 2e-5);
  }
}

TEST(AttentionTest, GradientsMatchDifferences) {
  TestStream stream;
  for (bool causal : {false, true}) {
    for (float dropout : {0.0f, 0.4f}) {
      AttentionCase<double> run({{4, 0, 7, 35}, 2, 3, causal, dropout, false});
      run.Both(stream);
      AttentionCase<double> probe = run;
      const Array<double> numeric = NumericGradient(probe.qkv, run.grad_output, [&](Array<double>& y) {
        probe.Forward(stream);
        y = probe.output;
      });
      ExpectNear(run.grad_qkv, numeric, 1e-7);
    }
  }
}

// Packing is not seen: a sequence gives the same bits alone and among others.
TEST(AttentionTest, SequenceDoesNotDependOnItsNeighbours) {
  TestStream stream;
  AttentionCase<float> packed({{20, 45, 9}, 2, 16, true, 0.3f, false}), alone({{45}, 2, 16, true, 0.3f, false});
  const int64_t width = 3 * 2 * 16;
  std::copy_n(packed.qkv.values.begin() + 20 * width, 45 * width, alone.qkv.values.begin());
  std::copy_n(packed.grad_output.values.begin() + 20 * 32, 45 * 32, alone.grad_output.values.begin());
  std::copy_n(packed.row_index.values.begin() + 20, 45, alone.row_index.values.begin());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::fill_n(packed.qkv.values.begin(), 20 * width, nan);
  std::fill_n(packed.qkv.values.begin() + 65 * width, 9 * width, nan);
  packed.Both(stream);
  alone.Both(stream);
  for (int64_t i = 0; i < 45 * 32; ++i) ASSERT_EQ(packed.output[20 * 32 + i], alone.output[i]);
  for (int64_t i = 0; i < 45 * width; ++i) ASSERT_EQ(packed.grad_qkv[20 * width + i], alone.grad_qkv[i]);
}

// Queries up to each of `ends` in turn, in one call each.
template <class S>
Array<S> CachedInPieces(AttentionCase<float>& run, Array<S> qkv, std::initializer_list<int64_t> ends, Stream& stream) {
  const int64_t heads = run.s.heads, depth = run.s.depth, width = heads * depth;
  Array<S> output(run.output.shape, S(7));
  int64_t begin = 0;
  for (int64_t end : ends) {
    const auto rows = [&](ArrayView view, int64_t first, int64_t stride) {
      return ArrayView(view.as<S>() + first * stride, view.dtype, {end - first, heads, depth}, view.strides);
    };
    CachedAttention({rows(run.Third(qkv, 0), begin, 3 * width), rows(run.Third(qkv, 1), 0, 0), rows(run.Third(qkv, 2), 0, 0),
                     rows(output, begin, width), run.Common(qkv).scale},
                    stream);
    begin = end;
  }
  return output;
}

template <class S>
void ExpectPiecesToGiveTheWhole(AttentionCase<float>& run, Array<S> qkv) {
  Array<S> whole(run.output.shape);
  TestStream one(1), two(2);
  AttentionForward({run.Common(qkv), whole, run.log_sum_exp}, one);
  ExpectSameBits(CachedInPieces(run, qkv, {70, 71, 78, 150}, two), whole);
  ExpectSameBits(CachedInPieces(run, qkv, {41, 42, 43, 150}, one), whole);
  ForEachInstructionSet([&](InstructionSet) {  // which need not be the bits of tiles
    AttentionForward({run.Common(qkv), whole, run.log_sum_exp}, one);
    ExpectSameBits(CachedInPieces(run, qkv, {70, 71, 78, 150}, one), whole);
  });
}

// A prompt, then a token at a time, then many: fewer queries than a block has, and more with and without keys before them. The bits
// are those of the whole sequence at once.
TEST(CachedAttentionTest, QueriesInPiecesGiveTheBitsOfTheWholeSequence) {
  for (int64_t depth : {5, 16, 64}) {
    AttentionCase<float> run({{150}, 3, depth, true, 0, false});
    ExpectPiecesToGiveTheWhole(run, run.qkv);
    ExpectPiecesToGiveTheWhole(run, Rounded(run.qkv));
  }
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  TestStream stream;
  AttentionCase<float> run({{3}, 1, 4, true, 0, false});
  for (float& x : run.qkv.values) x *= 1e4f;
  run.Both(stream);
  for (int64_t i = 0; i < run.output.size(); ++i) ASSERT_TRUE(std::isfinite(run.output[i]));
  for (int64_t i = 0; i < run.grad_qkv.size(); ++i) ASSERT_TRUE(std::isfinite(run.grad_qkv[i]));
}

TEST(AttentionTest, OverlappingTokensDie) {
  TestStream stream;
  AttentionCase<float> run({{3, 2}, 2, 4, true, 0, false});
  AttentionForwardArgs args{run.Common(run.qkv), run.output, run.log_sum_exp};
  args.k.strides[0] = 7;
  EXPECT_DEATH(AttentionForward(args, stream), "strides \\[7, 4, 1\\] of \\[5, 2, 4\\]");
}

TEST(AttentionTest, StridedLogSumExpDies) {
  TestStream stream;
  AttentionCase<float> run({{3, 2}, 2, 4, true, 0, false});
  AttentionForwardArgs args{run.Common(run.qkv), run.output, run.log_sum_exp};
  args.log_sum_exp.strides[0] = 4;
  EXPECT_DEATH(AttentionForward(args, stream), "log_sum_exp.is_dense");
}

TEST(AttentionTest, OffsetsThatMissTokensDie) {
  TestStream stream;
  AttentionCase<float> run({{3, 2}, 1, 4, true, 0, false});
  run.offsets[2] = 4;
  EXPECT_DEATH(run.Forward(stream), "0 to 4 of 5 tokens");
}

}  // namespace
}  // namespace tandem::kernels
