#include "kernels/attention.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/attention/passes.h"
#include "kernels/cpu/matmul/bf16_tiles.h"
#include "kernels/cpu/vector/bf16_rounding.h"
#include "kernels/cpu/vector/row_prefetch.h"
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

// One attention call with its arrays. q, k, v and their gradients are the thirds of [T, 3 H D]
// arrays.
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
        const int64_t place =
            s.scattered ? (t * 7 + 3) % kMaxLength : t + static_cast<int64_t>(b) % 3;
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
    return ArrayView(a.values.data() + i * width, DTypeOf<S>(), {num_tokens, s.heads, s.depth},
                     {3 * width, s.depth, 1});
  }
  template <class S>
  AttentionArgs Common(Array<S>& from) {
    return {Third(from, 0),
            Third(from, 1),
            Third(from, 2),
            offsets,
            row_index,
            kMaxLength,
            s.causal,
            1 / std::sqrt(static_cast<double>(s.depth)),
            s.dropout,
            {21, 22},
            23};
  }
  void Forward(Stream& stream) { AttentionForward({Common(qkv), output, log_sum_exp}, stream); }
  void Backward(Stream& stream) {
    AttentionBackward({Common(qkv), output, log_sum_exp, grad_output, Third(grad_qkv, 0),
                       Third(grad_qkv, 1), Third(grad_qkv, 2)},
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

// Attention by its definition: one score matrix per sequence and head.
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
          const uint64_t element = static_cast<uint64_t>(
              (run.row_index[i] * s.heads + h) * kMaxLength + run.row_index[key] % kMaxLength);
          if (DropoutBits({21, 22}, 23, element) < DropThreshold(s.dropout)) continue;
          const double probability = weight[j] / sum * KeepScale(DropThreshold(s.dropout));
          for (int64_t d = 0; d < s.depth; ++d)
            output[(i * s.heads + h) * s.depth + d] += probability * run.At(2, key, h, d);
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
    SCOPED_TRACE(testing::Message()
                 << setting.lengths.size() << " sequences, depth " << setting.depth);
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
      : qkv(Rounded(exact.qkv)),
        grad_output(Rounded(exact.grad_output)),
        output(exact.output.shape),
        grad_qkv(exact.qkv.shape),
        log_sum_exp(exact.log_sum_exp.shape) {
    AttentionForward({exact.Common(qkv), output, log_sum_exp}, stream);
    AttentionBackward(
        {exact.Common(qkv), output, log_sum_exp, grad_output, exact.Third(grad_qkv, 0),
         exact.Third(grad_qkv, 1), exact.Third(grad_qkv, 2)},
        stream);
  }
};

// bf16 only stores numbers: the vector kernels give f32 results, rounded.
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

const Setting kTileSettings[] = {{{33, 0, 64, 65, 2, 1}, 2, 32, true, 0.3f, false},
                                 {{33, 64, 65, 2}, 3, 64, false, 0.5f, false},
                                 {{31, 200}, 1, 96, true, 0.2f, true},
                                 {{600, 1100}, 1, 32, true, 0, false},
                                 {{300, 70}, 1, 32, false, 0.2f, true}};

// Gradients may overwrite q, k and v, also while other threads work on neighbouring sequences.
TEST(AttentionTest, GradientsInPlaceHaveTheSameBits) {
  std::vector<Setting> settings(std::begin(kSettings), std::end(kSettings));
  settings.insert(settings.end(), std::begin(kTileSettings), std::end(kTileSettings));
  for (const Setting& setting : settings) {
    SCOPED_TRACE(testing::Message()
                 << setting.lengths.size() << " sequences, depth " << setting.depth);
    const auto expect_same = [&](Stream& stream) {
      AttentionCase<float> run(setting);
      run.Both(stream);
      Bf16Run rounded(run, stream);
      AttentionBackward({run.Common(run.qkv), run.output, run.log_sum_exp, run.grad_output,
                         run.Third(run.qkv, 0), run.Third(run.qkv, 1), run.Third(run.qkv, 2)},
                        stream);
      AttentionBackward(
          {run.Common(rounded.qkv), rounded.output, rounded.log_sum_exp, rounded.grad_output,
           run.Third(rounded.qkv, 0), run.Third(rounded.qkv, 1), run.Third(rounded.qkv, 2)},
          stream);
      ExpectSameBits(run.qkv, run.grad_qkv);
      ExpectSameBits(rounded.qkv, rounded.grad_qkv);
    };
    TestStream single(1), triple(3);
    expect_same(triple);
    for (InstructionSet set : {InstructionSet::AVX2, InstructionSet::AVX512,
                               InstructionSet::AVX512_BF16, InstructionSet::PLAIN_TILES}) {
      SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(set));
      const InstructionSetLimit limit(set);
      expect_same(single);
    }
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

// Covers the code around the tiles on processors without them.
TEST(AttentionTest, PlainTilesAreCloseToVectors) {
  if (WidestInstructionSet() < InstructionSet::AVX512)
    GTEST_SKIP() << "tiles come with AVX-512, whose width the passes around them have";
  for (const Setting& setting : kTileSettings) {
    SCOPED_TRACE(testing::Message()
                 << setting.lengths.size() << " sequences, depth " << setting.depth);
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
  if (!UsesTiles()) GTEST_SKIP() << "the processor has neither AMX nor AVX-512 BF16";
  for (const Setting& setting : kTileSettings) {
    SCOPED_TRACE(testing::Message()
                 << setting.lengths.size() << " sequences, depth " << setting.depth);
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

// More keys than a block of scores holds. In several blocks, keys are invisible to a block of
// queries.
TEST(AttentionTest, LongSequencesMatchF64) {
  TestStream stream(2);
  for (const Setting& setting :
       {Setting{{1100}, 1, 8, true, 0, false}, Setting{{600, 517}, 1, 8, false, 0, false}}) {
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
      const Array<double> numeric =
          NumericGradient(probe.qkv, run.grad_output, [&](Array<double>& y) {
            probe.Forward(stream);
            y = probe.output;
          });
      ExpectNear(run.grad_qkv, numeric, 1e-7);
    }
  }
}

// One sequence, alone and among others that are full of NaN or infinity.
struct PackedAndAlone {
  static constexpr int64_t kDepth = 32, kHeads = 2, kBefore = 20, kTokens = 45, kBehind = 29,
                           kRow = kHeads * kDepth;
  AttentionCase<float> packed{{{kBefore, kTokens, kBehind}, kHeads, kDepth, true, 0.3f, false}};
  AttentionCase<float> alone{{{kTokens}, kHeads, kDepth, true, 0.3f, false}};

  PackedAndAlone() {
    std::copy_n(packed.qkv.values.begin() + kBefore * 3 * kRow, kTokens * 3 * kRow,
                alone.qkv.values.begin());
    std::copy_n(packed.grad_output.values.begin() + kBefore * kRow, kTokens * kRow,
                alone.grad_output.values.begin());
    std::copy_n(packed.row_index.values.begin() + kBefore, kTokens, alone.row_index.values.begin());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (auto [array, width] : {std::pair(&packed.qkv, 3 * kRow), {&packed.grad_output, kRow}}) {
      std::fill_n(array->values.begin(), kBefore * width, nan);
      std::fill_n(array->values.begin() + (kBefore + kTokens) * width, kBehind * width, nan);
    }
  }
  template <class A, class B>
  static void ExpectSameSequence(const A& among, const B& alone) {
    for (int64_t i = 0; i < kTokens * kRow; ++i)
      ASSERT_EQ(Bits(among.output[kBefore * kRow + i]), Bits(alone.output[i])) << i;
    for (int64_t i = 0; i < kTokens * 3 * kRow; ++i)
      ASSERT_EQ(Bits(among.grad_qkv[kBefore * 3 * kRow + i]), Bits(alone.grad_qkv[i])) << i;
  }
  static uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }
  static uint32_t Bits(BFloat16 x) { return x.bits; }
};

// Packing is invisible: a sequence gives the same bits alone and among others.
TEST(AttentionTest, SequenceDoesNotDependOnItsNeighbours) {
  TestStream stream;
  PackedAndAlone cases;
  cases.packed.Both(stream);
  cases.alone.Both(stream);
  PackedAndAlone::ExpectSameSequence(cases.packed, cases.alone);
}

TEST(AttentionTest, Bf16SequenceDoesNotDependOnItsNeighbours) {
  TestStream stream;
  for (InstructionSet set :
       {InstructionSet::AVX2, InstructionSet::AVX512, InstructionSet::AVX512_BF16,
        InstructionSet::AMX, InstructionSet::PLAIN_TILES}) {
    SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(set));
    const InstructionSetLimit limit(set);
    PackedAndAlone cases;
    const Bf16Run packed(cases.packed, stream), alone(cases.alone, stream);
    PackedAndAlone::ExpectSameSequence(packed, alone);
    for (BFloat16 x : alone.grad_qkv.values) ASSERT_FALSE(std::isnan(ToFloat(x)));
  }
}

// Rows an odd number of elements apart. Tiles cannot read pairs from such rows in place.
TEST(AttentionTest, Bf16RowsMayLieAnyNumberOfElementsApart) {
  TestStream stream;
  AttentionCase<float> run({{70, 40}, 1, 32, true, 0, false});
  const Array<BFloat16> packed = Rounded(run.qkv);
  Array<BFloat16> apart({110, 97}), output(run.output.shape), wanted(run.output.shape);
  for (int64_t t = 0; t < 110; ++t)
    std::copy_n(packed.values.begin() + t * 96, 96, apart.values.begin() + t * 97);
  const auto third = [](Array<BFloat16>& from, int64_t stride, int64_t i) {
    return ArrayView(from.values.data() + i * 32, DType::BF16, {110, 1, 32}, {stride, 32, 1});
  };
  for (InstructionSet set :
       {InstructionSet::AVX512, InstructionSet::AMX, InstructionSet::PLAIN_TILES}) {
    const InstructionSetLimit limit(set);
    Array<BFloat16> dense = packed, grad_output = Rounded(run.grad_output), grad({110, 97}),
                    wanted_grad({110, 96});
    AttentionArgs args = run.Common(dense);
    AttentionForward({args, wanted, run.log_sum_exp}, stream);
    AttentionBackward({args, wanted, run.log_sum_exp, grad_output, third(wanted_grad, 96, 0),
                       third(wanted_grad, 96, 1), third(wanted_grad, 96, 2)},
                      stream);
    args.q = third(apart, 97, 0), args.k = third(apart, 97, 1), args.v = third(apart, 97, 2);
    AttentionForward({args, output, run.log_sum_exp}, stream);
    AttentionBackward({args, output, run.log_sum_exp, grad_output, third(grad, 97, 0),
                       third(grad, 97, 1), third(grad, 97, 2)},
                      stream);
    ExpectSameBits(output, wanted);
    for (int64_t t = 0; t < 110; ++t) {
      for (int64_t i = 0; i < 96; ++i)
        ASSERT_EQ(grad[t * 97 + i].bits, wanted_grad[t * 96 + i].bits) << t << ", " << i;
    }
  }
}

// Rounding sixteen columns at once equals rounding one by one. Covers ties, NaN and infinity, and
// rows that no query sees.
TEST(RoundingTest, ColumnsAreRoundedAsStorageIs) {
  constexpr int64_t kRows = 32, kRow = 64;
  Array<float> from = RandomArray<float>({kRows, kRow}, 5);
  from[3] = std::bit_cast<float>(0x3f808000u),
  from[kRow + 3] = std::bit_cast<float>(0x3f818000u);  // halves
  from[4] = std::numeric_limits<float>::infinity(),
  from[5] = std::numeric_limits<float>::quiet_NaN(), from[6] = -0.0f;
  for (InstructionSet set :
       {InstructionSet::AMX, InstructionSet::AVX2, InstructionSet::PLAIN_TILES}) {
    const InstructionSetLimit limit(set);
    for (int64_t seen : {0, 1, 7, 32}) {
      std::vector<uint32_t> pairs(kRows / 2 * 16);
      RoundColumns(from.values.data(), kRow, seen, kRows, pairs.data());
      for (int64_t j = 0; j < kRows; ++j) {
        for (int64_t c = 0; c < 16; ++c) {
          const uint16_t wanted = j < seen ? ToBFloat16(from[j * kRow + c]).bits : 0;
          ASSERT_EQ(
              static_cast<uint16_t>(pairs[static_cast<size_t>(j / 2 * 16 + c)] >> (j % 2 * 16)),
              wanted)
              << j << ", " << c;
        }
      }
    }
  }
}

// Score gradients rounded in registers equal those of the f32 pass, up to its rounding and the
// exponential's error of 3e-6.
// Every copy gives the same bits. Gradients are zero past the block's end and for keys that the
// query does not see.
TEST(RoundingTest, GradientsOfScoresAreThoseOfTheF32Pass) {
  constexpr int64_t kRows = 32, kColumns = RoundedScores::kRow, kPanel = kRows / 2 * kLanes;
  const Array<float> scores = RandomArray<float>({kRows + kTileRows, kScoreRow}, 1),
                     grads = RandomArray<float>(scores.shape, 2),
                     log_sums = RandomArray<float>({kColumns}, 3),
                     deltas = RandomArray<float>({kColumns}, 4);
  std::vector<int64_t> places(kRows);
  std::vector<uint64_t> base(kColumns);
  for (int64_t j = 0; j < kRows; ++j) places[static_cast<size_t>(j)] = j;
  for (int64_t c = 0; c < kColumns; ++c)
    base[static_cast<size_t>(c)] = static_cast<uint64_t>(100 * c + 3);
  std::vector<uint32_t> room(static_cast<size_t>(WordColumnsRoom(kRows)));
  const auto expect_rounded = [](BFloat16 rounded, float exact) {
    const float slack = 3e-6f * std::fabs(exact), low = ToFloat(ToBFloat16(exact - slack)),
                high = ToFloat(ToBFloat16(exact + slack));
    ASSERT_GE(ToFloat(rounded), low);
    ASSERT_LE(ToFloat(rounded), high);
  };
  for (const float dropout : {0.0f, 0.4f}) {
    const GradientTerms<float> terms{0.5f,
                                     {RoundKeys(7), 3, DropLimit(DropThreshold(dropout)),
                                      places.data(), true, room.data(), base.data()},
                                     1.5f,
                                     log_sums.values.data(),
                                     deltas.values.data()};
    for (const ScoreBlock& block : {ScoreBlock{32, 32, 32}, ScoreBlock{32, 32, 0},
                                    ScoreBlock{16, 25, 5}, ScoreBlock{32, 7, -9}}) {
      Array<float> wanted_scores = scores, wanted_grads = grads;
      GradientsOfScores(block, terms, 0, wanted_scores.values.data(), wanted_grads.values.data());
      Array<BFloat16> first_rows, first_grad_rows;
      for (InstructionSet set :
           {InstructionSet::AMX, InstructionSet::AVX2, InstructionSet::PLAIN_TILES}) {
        SCOPED_TRACE(testing::Message()
                     << block.columns << " x " << block.keys << " at " << block.position
                     << ", dropout " << dropout << ", set " << static_cast<int>(set));
        const InstructionSetLimit limit(set);
        Array<BFloat16> rows({kRows, kColumns}), grad_rows({kRows, kColumns});
        std::vector<uint32_t> pairs(kColumns / kLanes * kPanel);
        RoundGradientsOfScores(block, terms, 0, scores.values.data(), grads.values.data(), kRows,
                               kColumns,
                               {rows.values.data(), grad_rows.values.data(), pairs.data(), kPanel});
        if (set == InstructionSet::AMX) first_rows = rows, first_grad_rows = grad_rows;
        for (int64_t j = 0; j < kRows; ++j) {
          for (int64_t c = 0; c < kColumns; ++c) {
            SCOPED_TRACE(testing::Message() << "key " << j << ", query " << c);
            const bool seen = c < block.columns && j < block.SeenByAll(c);
            const int64_t at = j * kColumns + c;
            expect_rounded(rows[at], seen ? wanted_scores[j * kScoreRow + c] : 0.0f);
            expect_rounded(grad_rows[at], seen ? wanted_grads[j * kScoreRow + c] : 0.0f);
            const uint32_t pair =
                pairs[static_cast<size_t>(c / kLanes * kPanel + j / 2 * kLanes + c % kLanes)];
            ASSERT_EQ(static_cast<uint16_t>(pair >> (j % 2 * 16)), grad_rows[at].bits);
            ASSERT_EQ(rows[at].bits, first_rows[at].bits);
            // Keys that a query does not see may have a gradient of -0.
            ASSERT_EQ(ToFloat(grad_rows[at]), ToFloat(first_grad_rows[at]));
          }
        }
      }
    }
  }
}

// Rounding whole rows into rows that lie apart gives the bits of storage. So does rounding columns,
// each times its factor, into rows.
TEST(RoundingTest, RowsAndColumnsAreRoundedAsStorageIs) {
  constexpr int64_t kRows = 32, kColumns = 64, kApart = 96;
  Array<float> from = RandomArray<float>({kRows, kColumns}, 6);
  const Array<float> factors = RandomArray<float>({kColumns}, 7);
  from[4] = std::numeric_limits<float>::infinity(),
  from[5] = std::numeric_limits<float>::quiet_NaN(), from[6] = -0.0f;
  for (InstructionSet set : {InstructionSet::AMX, InstructionSet::PLAIN_TILES}) {
    const InstructionSetLimit limit(set);
    if (!UsesTiles()) continue;
    Array<BFloat16> to({kRows, kApart}, BFloat16{7});
    RoundRows(from.values.data(), kRows, kColumns, factors[0], to.values.data(), kApart);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t c = 0; c < kApart; ++c) {
        const uint16_t wanted =
            c < kColumns ? ToBFloat16(factors[0] * from[r * kColumns + c]).bits : 7;
        ASSERT_EQ(to[r * kApart + c].bits, wanted) << r << ", " << c;
      }
    }
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 64}, {5, 6}, {19, 48}}) {
      Array<BFloat16> columns({end - begin, kApart}, BFloat16{7});
      RoundTransposed(from.values.data(), kRows, kColumns, begin, end, factors.values.data(),
                      columns.values.data(), kApart);
      for (int64_t c = begin; c < end; ++c) {
        for (int64_t r = 0; r < kApart; ++r) {
          const uint16_t wanted =
              r < kRows ? ToBFloat16(factors[c] * from[r * kColumns + c]).bits : 7;
          ASSERT_EQ(columns[(c - begin) * kApart + r].bits, wanted)
              << r << ", " << c << " of " << begin << " to " << end;
        }
      }
    }
  }
}

// Fetches every line of every row once, however the arithmetic is cut into pieces, and no line
// behind them.
TEST(RowPrefetchTest, ComesOutEven) {
  for (int64_t pieces : {0, 1, 7, 40, 1000}) {
    RowPrefetch prefetch;
    static const char rows[64 * 100] = {};
    prefetch.Add(rows, 640, 10, 256);
    prefetch.Add(rows, 640, 0, 256);
    prefetch.Add(rows + 320, 640, 10, 64);
    prefetch.SpreadOver(pieces);
    EXPECT_EQ(prefetch.LinesLeft(), 50);
    prefetch.Pass(pieces / 2);
    if (pieces > 1) {
      EXPECT_NEAR(static_cast<double>(prefetch.LinesLeft()), 25,
                  50.0 / static_cast<double>(pieces));
    }
    prefetch.Pass(std::max<int64_t>(1, pieces) - pieces / 2);
    EXPECT_EQ(prefetch.LinesLeft(), 0);
    prefetch.Fetch();
    EXPECT_EQ(prefetch.LinesLeft(), 0);
  }
  // A loop that counts its own iterations.
  RowPrefetch prefetch;
  static const char line[64 * 100] = {};
  prefetch.Add(line, 64, 100, 64);
  prefetch.SpreadOver(64 * 4);
  for (int64_t tile = 0; tile < 4; ++tile) {
    const int64_t period = prefetch.PiecesPerLine();
    for (int64_t d = 0; d < 64; d += period) prefetch.Fetch();
  }
  EXPECT_LE(prefetch.LinesLeft(), 8);
}

// Rows that continue others are fetched with them. A line that both rows share is fetched once.
TEST(RowPrefetchTest, ContinuesRows) {
  static const char rows[640 * 10] = {};
  RowPrefetch prefetch;
  prefetch.Add(rows, 640, 10, 96);
  prefetch.Add(rows + 96, 640, 10, 32);
  prefetch.Add(rows + 128, 640, 9, 64);  // other rows
  prefetch.SpreadOver(100);
  EXPECT_EQ(prefetch.LinesLeft(), 10 * 2 + 9);
  prefetch.Pass(100);
  EXPECT_EQ(prefetch.LinesLeft(), 0);
}

// Computes the queries up to each of `ends` in turn, one call for each end.
template <class S>
Array<S> CachedInPieces(AttentionCase<float>& run, Array<S> qkv,
                        std::initializer_list<int64_t> ends, Stream& stream) {
  const int64_t heads = run.s.heads, depth = run.s.depth, width = heads * depth;
  Array<S> output(run.output.shape, S(7));
  int64_t begin = 0;
  for (int64_t end : ends) {
    const auto rows = [&](ArrayView view, int64_t first, int64_t stride) {
      return ArrayView(view.as<S>() + first * stride, view.dtype, {end - first, heads, depth},
                       view.strides);
    };
    CachedAttention(
        {rows(run.Third(qkv, 0), begin, 3 * width), rows(run.Third(qkv, 1), 0, 0),
         rows(run.Third(qkv, 2), 0, 0), rows(output, begin, width), run.Common(qkv).scale},
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

// A prompt, then one token at a time, then many tokens. Covers fewer queries than a block has, and
// more, with and without earlier keys.
// The bits equal those of the whole sequence in one call.
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
