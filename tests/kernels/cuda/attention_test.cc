#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/attention_plan.h"
#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {
namespace {

struct Setting {
  std::vector<int64_t> lengths;
  int64_t heads = 2, depth = 16;
  bool causal = true;
  float dropout = 0;
  int64_t max_length = 203;
  bool scattered = false;  // places of the tokens in no order
  int64_t apart = 0;       // elements between the tokens of [T, (H + 2 G) D]
  int64_t shift = 0;       // elements from an aligned address to the arrays'
  bool tall = false;
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t first_head = 0, all_heads = 0;

  // The heads of part 0 (q), 1 (k) or 2 (v).
  int64_t HeadsOf(int64_t part) const { return part == 0 || kv_heads == 0 ? heads : kv_heads; }
  // The columns before part `part`; of all parts for part 3.
  int64_t ColumnsBefore(int64_t part) const {
    int64_t before = 0;
    for (int64_t i = 0; i < part; ++i) before += HeadsOf(i) * depth;
    return before;
  }
};

std::ostream& operator<<(std::ostream& out, const Setting& s) {
  out << "depth " << s.depth << ", " << s.heads << " heads, causal " << s.causal << ", dropout "
      << s.dropout << ", lengths";
  for (int64_t length : s.lengths) out << " " << length;
  return out << (s.scattered ? ", scattered" : "") << ", " << s.apart << " apart, shift " << s.shift
             << (s.tall ? ", tall" : "") << ", " << s.HeadsOf(1) << " heads of keys, first head "
             << s.first_head << " of " << s.all_heads;
}

const std::vector<int64_t> kLengths = {0, 1, 3, 17, 64, 65, 130};

// The arrays of one call, in f64. q, k, v and their gradients are parts of [T, stride] arrays.
struct Reference {
  Setting s;
  int64_t num_tokens = 0, stride;
  Array<int64_t> offsets, row_index;
  Array<double> qkv, grad_output, output, log_sum_exp, grad_qkv;

  explicit Reference(const Setting& setting)
      : s(setting),
        stride(s.ColumnsBefore(3) + s.apart),
        offsets({static_cast<int64_t>(s.lengths.size()) + 1}) {
    std::vector<int64_t> rows;
    for (size_t b = 0; b < s.lengths.size(); ++b) {
      for (int64_t t = 0; t < s.lengths[b]; ++t) {
        const int64_t place =
            s.scattered ? (t * 7 + 3) % s.max_length : t + static_cast<int64_t>(b) % 3;
        const int64_t sample =
            static_cast<int64_t>(b) + 4 + (b % 2 == 0 ? 0 : int64_t{1} << 33);  // more than 32 bits
        rows.push_back(sample * s.max_length + place);
      }
      offsets[static_cast<int64_t>(b) + 1] = num_tokens += s.lengths[b];
    }
    row_index = Array<int64_t>({num_tokens});
    std::copy(rows.begin(), rows.end(), row_index.values.begin());
    output = Array<double>({num_tokens, s.heads, s.depth});
    log_sum_exp = Array<double>({num_tokens, s.heads});
    grad_qkv = Array<double>({num_tokens, stride});
  }
  ArrayView Part(const ArrayView& a, int64_t i) const {
    return ArrayView(
        static_cast<char*>(a.data) + static_cast<size_t>(s.ColumnsBefore(i)) * SizeOf(a.dtype),
        a.dtype, {num_tokens, s.HeadsOf(i), s.depth}, {stride, s.depth, 1});
  }
  AttentionArgs Common(const ArrayView& from, const ArrayView& offset, const ArrayView& row) const {
    const double scale = 1 / std::sqrt(static_cast<double>(s.depth));
    return {Part(from, 0), Part(from, 1), Part(from, 2), offset,   row, s.max_length,
            s.causal,      scale,         s.dropout,     {21, 22}, 23,  s.first_head,
            s.all_heads};
  }
  void Forward(Stream& stream) {
    AttentionForward({Common(qkv, offsets, row_index), output, log_sum_exp}, stream);
  }
  void Backward(Stream& stream) {
    AttentionBackward({Common(qkv, offsets, row_index), output, log_sum_exp, grad_output,
                       Part(grad_qkv, 0), Part(grad_qkv, 1), Part(grad_qkv, 2)},
                      stream);
  }
};

// Runs the call of Reference on the device, on elements of T.
template <class T>
struct DeviceRun {
  Array<T> output, grad_qkv;
  Array<float> log_sum_exp;

  DeviceRun(Reference& r, Stream& stream) {
    const Setting& s = r.s;
    const int64_t shift = s.shift;
    OnDevice<int64_t> offsets(r.offsets, stream), row_index(r.row_index, stream);
    OnDevice<T> qkv(Shifted(RoundedTo<T>(r.qkv), shift), stream),
        grad(RoundedTo<T>(r.grad_output), stream);
    OnDevice<T> out(Poisoned<T>({r.num_tokens, s.heads, s.depth}), stream);
    OnDevice<T> grads(Shifted(Poisoned<T>({r.num_tokens, r.stride}), shift), stream);
    OnDevice<float> sums(Poisoned<float>({r.num_tokens, s.heads}), stream);
    const auto at = [&](const OnDevice<T>& a) {
      return ArrayView(a.data() + shift, DTypeOf<T>(), {r.num_tokens, r.stride});
    };
    const AttentionArgs common = r.Common(at(qkv), offsets, row_index);
    const AttentionForwardArgs forward{common, out, sums};
    const AttentionBackwardArgs backward{
        common, out, sums, grad, r.Part(at(grads), 0), r.Part(at(grads), 1), r.Part(at(grads), 2)};
    if (s.tall) {
      cuda::AttentionForward(forward, true, stream);
      cuda::AttentionBackward(backward, true, stream);
    } else {
      cuda::AttentionForward(forward, stream);
      cuda::AttentionBackward(backward, stream);
    }
    output = out.Get();
    log_sum_exp = sums.Get();
    const Array<T> all = grads.Get();
    grad_qkv = Array<T>({r.num_tokens, r.stride});
    std::copy_n(all.values.begin() + shift, grad_qkv.size(), grad_qkv.values.begin());
  }
  static Array<T> Shifted(const Array<T>& from, int64_t shift) {
    if (shift == 0) return from;
    Array<T> to({shift + from.size()});
    std::copy_n(from.values.begin(), from.size(), to.values.begin() + shift);
    return to;
  }
};

// Returns the columns of q, k or v (part 0, 1 or 2) of a [T, stride] array.
template <class T>
Array<T> PartOf(const Reference& r, const Array<T>& from, int64_t part) {
  const int64_t width = r.s.HeadsOf(part) * r.s.depth, first = r.s.ColumnsBefore(part);
  Array<T> to({r.num_tokens, width});
  for (int64_t t = 0; t < r.num_tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) to[t * width + i] = from[t * r.stride + first + i];
  }
  return to;
}

template <class T>
void ExpectGapsUntouched(const Reference& r, const Array<T>& grads) {
  for (int64_t t = 0; t < r.num_tokens; ++t) {
    for (int64_t i = r.stride - r.s.apart; i < r.stride; ++i) {
      ASSERT_TRUE(std::isnan(AsDouble(grads[t * r.stride + i]))) << t << ", " << i;
    }
  }
}

class AttentionDeviceTest : public DeviceTest {
 protected:
  // The reference's gradients start from the device's own output, which is rounded to T.
  template <class T>
  void ExpectTheReference(const Setting& setting) {
    SCOPED_TRACE(testing::Message() << setting);
    Reference r(setting);
    r.qkv = RandomFor<T>({r.num_tokens, r.stride}, 1, 2);
    r.grad_output = RandomFor<T>({r.num_tokens, setting.heads, setting.depth}, 2);
    r.Forward(cpu());
    const DeviceRun<T> run(r, device());
    EXPECT_LT(RelativeError(run.output, r.output), kDeviceTolerance<T>);
    EXPECT_LT(RelativeError(run.log_sum_exp, r.log_sum_exp), 1e-5);
    r.output = Widened(run.output);
    r.Backward(cpu());
    const int64_t longest = setting.lengths.empty()
                                ? 0
                                : *std::max_element(setting.lengths.begin(), setting.lengths.end());
    for (int64_t part = 0; part < 3; ++part) {
      Array<double> wanted = PartOf(r, r.grad_qkv, part);
      // A lone key has probability 1: the gradients of its score are rounding errors.
      if (part < 2 && sizeof(T) == 4 && longest <= 1)
        std::fill(wanted.values.begin(), wanted.values.end(), 0);
      EXPECT_LT(RelativeError(PartOf(r, run.grad_qkv, part), wanted), kDeviceTolerance<T>)
          << "qkv"[part];
    }
    ExpectGapsUntouched(r, run.grad_qkv);
  }
};

TEST_F(AttentionDeviceTest, Bf16OfEveryDepthMatchesF64) {
  for (int64_t depth : {16, 24, 32, 64, 96, 128}) {
    ExpectTheReference<BFloat16>({kLengths, depth == 16 ? 3 : 1, depth, depth % 64 != 0, 0});
  }
}

TEST_F(AttentionDeviceTest, Bf16WithDropoutMatchesF64WithTheSameMask) {
  ExpectTheReference<BFloat16>({kLengths, 2, 32, true, 0.3f});
  ExpectTheReference<BFloat16>({{65, 130}, 1, 64, false, 0.5f});
  ExpectTheReference<BFloat16>(
      {{70, 33}, 2, 16, true, 0.2f, 208});  // runs begin where Philox blocks do
  ExpectTheReference<BFloat16>({{17, 130}, 1, 16, true, 0.4f, 203, true});  // no runs
  ExpectTheReference<BFloat16>({{130}, 1, 128, true, 0.1f});
}

TEST_F(AttentionDeviceTest, TallBlocksMatchF64) {
  for (const Setting& setting :
       {Setting{kLengths, 2, 64, true, 0}, Setting{kLengths, 1, 64, true, 0.3f},
        Setting{{129, 70}, 1, 64, false, 0.3f}, Setting{{130}, 1, 96, false, 0},
        Setting{{200}, 1, 128, true, 0}}) {
    Setting tall = setting;
    tall.tall = true;
    ExpectTheReference<BFloat16>(tall);
  }
}

TEST_F(AttentionDeviceTest, F32OfEveryDepthMatchesF64) {
  for (int64_t depth : {1, 5, 16, 24, 64, 67, 128}) {
    ExpectTheReference<float>({kLengths, depth == 5 ? 3 : 1, depth, depth % 2 == 0, 0});
  }
}

TEST_F(AttentionDeviceTest, F32WithDropoutMatchesF64WithTheSameMask) {
  ExpectTheReference<float>({kLengths, 2, 24, true, 0.3f});
  ExpectTheReference<float>({{65, 130}, 1, 64, false, 0.5f});
  ExpectTheReference<float>({{17, 130}, 1, 16, true, 0.4f, 203, true});
  ExpectTheReference<float>({{70}, 1, 8, true, 0.2f, 208});
}

TEST_F(AttentionDeviceTest, TokensApartAndUnalignedMatchF64) {
  ExpectTheReference<BFloat16>({{3, 70}, 2, 16, true, 0.3f, 203, false, 8});
  ExpectTheReference<BFloat16>({{3, 70}, 2, 16, true, 0.3f, 203, false, 3});  // rows off 16 bytes
  ExpectTheReference<BFloat16>({{3, 70}, 2, 16, false, 0, 203, false, 0, 1});
  ExpectTheReference<BFloat16>({{3, 70}, 2, 5, true, 0});
  ExpectTheReference<float>({{3, 70}, 2, 16, true, 0, 203, false, 4});
  ExpectTheReference<float>({{3, 70}, 2, 16, true, 0.3f, 203, false, 1});
  ExpectTheReference<float>({{3, 70}, 2, 16, false, 0, 203, false, 0, 1});
}

Setting Shared(Setting setting, int64_t kv_heads, bool tall = false) {
  setting.kv_heads = kv_heads;
  setting.tall = tall;
  return setting;
}

TEST_F(AttentionDeviceTest, SharedHeadsMatchF64) {
  ExpectTheReference<BFloat16>(Shared({kLengths, 6, 16, true, 0}, 2));
  ExpectTheReference<BFloat16>(Shared({{65, 130}, 4, 32, false, 0.3f}, 2));
  ExpectTheReference<BFloat16>(Shared({{3, 130}, 3, 128, true, 0.3f}, 1));
  ExpectTheReference<BFloat16>(Shared({{130, 17}, 2, 64, true, 0}, 1, true));
  ExpectTheReference<BFloat16>(Shared({{130}, 4, 64, true, 0.3f}, 2, true));
  ExpectTheReference<BFloat16>(Shared({{3, 70}, 4, 5, true, 0.3f}, 2));  // in f32 arithmetic
  ExpectTheReference<float>(Shared({kLengths, 6, 16, true, 0}, 2));
  ExpectTheReference<float>(Shared({{65, 130}, 4, 24, false, 0.3f}, 2));
  ExpectTheReference<float>(Shared({{3, 70}, 3, 67, true, 0.3f}, 1));
  ExpectTheReference<float>(Shared({{3, 70}, 4, 16, true, 0.3f, 203, true, 5}, 2));
}

// Heads 3 .. 6 of 9 drop what the reference drops, with heads of keys of their own or shared ones.
TEST_F(AttentionDeviceTest, SomeHeadsOfALayerMatchF64WithTheSameMask) {
  for (int64_t kv_heads : {0, 2}) {
    Setting some = Shared({{17, 70}, 4, 16, true, 0.3f}, kv_heads);
    some.first_head = 3;
    some.all_heads = 9;
    ExpectTheReference<BFloat16>(some);
    ExpectTheReference<float>(some);
    some.scattered = true;
    ExpectTheReference<BFloat16>(some);
  }
}

TEST_F(AttentionDeviceTest, NoTokensAndEmptySequencesDoNothing) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{}, {0}, {0, 0, 1, 0}, std::vector<int64_t>(70, 1)}) {
    ExpectTheReference<float>({lengths, 2, 16, true, 0.3f});
    ExpectTheReference<BFloat16>({lengths, 2, 16, false, 0.3f});
  }
}

template <class T>
void ExpectSameBytes(const Array<T>& a, const Array<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(
      std::memcmp(a.values.data(), b.values.data(), static_cast<size_t>(a.size()) * sizeof(T)), 0);
}

template <class T>
void ExpectTwoRunsToAgree(const Setting& setting, Stream& stream) {
  Reference r(setting);
  r.qkv = RandomFor<T>({r.num_tokens, r.stride}, 1, 2);
  r.grad_output = RandomFor<T>({r.num_tokens, setting.heads, setting.depth}, 2);
  const DeviceRun<T> one(r, stream), two(r, stream);
  ExpectSameBytes(one.output, two.output);
  ExpectSameBytes(one.log_sum_exp, two.log_sum_exp);
  ExpectSameBytes(one.grad_qkv, two.grad_qkv);
}

TEST_F(AttentionDeviceTest, TwoRunsGiveTheSameBits) {
  ExpectTwoRunsToAgree<BFloat16>({kLengths, 2, 32, true, 0.3f}, device());
  ExpectTwoRunsToAgree<float>({kLengths, 2, 24, true, 0.3f}, device());
  ExpectTwoRunsToAgree<BFloat16>(Shared({kLengths, 4, 16, true, 0.3f}, 2), device());
  ExpectTwoRunsToAgree<float>(Shared({kLengths, 4, 16, true, 0.3f}, 2), device());
}

// A sequence alone gives the bits that it gives behind other sequences full of NaN, also where its
// blocks have another height.
template <class T>
void ExpectNeighboursNotToMatter(const Setting& packed_setting, size_t sequence, Stream& stream) {
  Setting alone_setting = packed_setting;
  alone_setting.lengths = {packed_setting.lengths[sequence]};
  alone_setting.tall = !packed_setting.tall;
  Reference packed(packed_setting), alone(alone_setting);
  const int64_t first = packed.offsets[static_cast<int64_t>(sequence)],
                width = packed.s.heads * packed.s.depth;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  packed.qkv = Array<double>({packed.num_tokens, packed.stride}, nan);
  packed.grad_output = Array<double>({packed.num_tokens, packed.s.heads, packed.s.depth}, nan);
  alone.qkv = RandomFor<T>({alone.num_tokens, alone.stride}, 1, 2);
  alone.grad_output = RandomFor<T>({alone.num_tokens, alone.s.heads, alone.s.depth}, 2);
  std::copy_n(alone.qkv.values.begin(), alone.qkv.size(),
              packed.qkv.values.begin() + first * packed.stride);
  std::copy_n(alone.grad_output.values.begin(), alone.grad_output.size(),
              packed.grad_output.values.begin() + first * width);
  std::copy_n(packed.row_index.values.begin() + first, alone.num_tokens,
              alone.row_index.values.begin());
  const DeviceRun<T> one(alone, stream), among(packed, stream);
  EXPECT_EQ(std::memcmp(one.output.values.data(),
                        &among.output.values[static_cast<size_t>(first * width)],
                        static_cast<size_t>(one.output.size()) * sizeof(T)),
            0);
  EXPECT_EQ(std::memcmp(one.grad_qkv.values.data(),
                        &among.grad_qkv.values[static_cast<size_t>(first * packed.stride)],
                        static_cast<size_t>(one.grad_qkv.size()) * sizeof(T)),
            0);
}

TEST_F(AttentionDeviceTest, SequenceDoesNotDependOnItsNeighbours) {
  ExpectNeighboursNotToMatter<BFloat16>({{20, 1, 130, 9}, 2, 32, true, 0.3f}, 2, device());
  ExpectNeighboursNotToMatter<BFloat16>({{20, 1, 200, 9}, 1, 64, true, 0.3f}, 2, device());
  ExpectNeighboursNotToMatter<BFloat16>({{20, 200, 9}, 1, 64, false, 0}, 1, device());
  ExpectNeighboursNotToMatter<float>({{20, 1, 130, 9}, 2, 16, true, 0.3f}, 2, device());
  ExpectNeighboursNotToMatter<BFloat16>(Shared({{20, 130, 9}, 2, 64, true, 0}, 1), 1, device());
}

// A run of half of a layer's heads gives the bits that a run of all heads gives.
template <class T>
void ExpectHalvesToMatchTheWhole(const Setting& setting, Stream& stream) {
  Setting half = setting;
  half.heads = setting.heads / 2;
  half.kv_heads = setting.kv_heads / 2;
  half.all_heads = setting.heads;
  Reference both(setting);
  both.qkv = RandomFor<T>({both.num_tokens, both.stride}, 1, 2);
  both.grad_output = RandomFor<T>({both.num_tokens, setting.heads, setting.depth}, 2);
  const DeviceRun<T> whole(both, stream);
  const int64_t width = half.heads * half.depth;
  // Returns a half of each token's heads, which have 2 * `columns` columns.
  const auto half_of = [&](const auto& from, int64_t columns, int64_t index) {
    auto to = from;
    to.values.clear();
    for (int64_t t = 0; t < both.num_tokens; ++t) {
      const auto first = from.values.begin() + (2 * t + index) * columns;
      to.values.insert(to.values.end(), first, first + columns);
    }
    to.shape = {both.num_tokens, columns / half.depth, half.depth};
    return to;
  };
  for (int64_t index : {0, 1}) {
    half.first_head = index * half.heads;
    Reference alone(half);
    alone.qkv = Array<double>({alone.num_tokens, alone.stride});
    for (int64_t part = 0; part < 3; ++part) {
      const int64_t columns = half.HeadsOf(part) * half.depth;
      const Array<double> values = half_of(PartOf(both, both.qkv, part), columns, index);
      for (int64_t i = 0; i < values.size(); ++i) {
        alone.qkv[i / columns * alone.stride + half.ColumnsBefore(part) + i % columns] = values[i];
      }
    }
    alone.grad_output = half_of(both.grad_output, width, index);
    const DeviceRun<T> run(alone, stream);
    ExpectSameBytes(run.output, half_of(whole.output, width, index));
    for (int64_t part = 0; part < 3; ++part) {
      ExpectSameBytes(
          PartOf(alone, run.grad_qkv, part),
          half_of(PartOf(both, whole.grad_qkv, part), half.HeadsOf(part) * half.depth, index));
    }
  }
}

TEST_F(AttentionDeviceTest, HalfOfTheHeadsGivesTheBitsOfAll) {
  ExpectHalvesToMatchTheWhole<BFloat16>(Shared({{9, 70}, 4, 16, true, 0.3f}, 2), device());
  ExpectHalvesToMatchTheWhole<float>(Shared({{9, 70}, 4, 16, true, 0.3f}, 2), device());
}

TEST_F(AttentionDeviceTest, LargeScoresDoNotOverflow) {
  Reference r({{3, 66}, 1, 16, true, 0.3f});
  r.qkv = RandomFor<BFloat16>({r.num_tokens, r.stride}, 1, 1e4);
  r.grad_output = RandomFor<BFloat16>({r.num_tokens, 1, 16}, 2);
  const DeviceRun<BFloat16> tiles(r, device());
  const DeviceRun<float> floats(r, device());
  for (int64_t i = 0; i < tiles.output.size(); ++i) {
    ASSERT_TRUE(std::isfinite(AsDouble(tiles.output[i])) && std::isfinite(floats.output[i]));
  }
  for (int64_t i = 0; i < tiles.grad_qkv.size(); ++i) {
    ASSERT_TRUE(std::isfinite(AsDouble(tiles.grad_qkv[i])) && std::isfinite(floats.grad_qkv[i]));
  }
}

#ifdef TANDEM_CUDA_EMULATOR
// On a GPU the trap ends the context, and the other tests with it.
TEST_F(AttentionDeviceTest, OffsetsThatMissTokensDie) {
  for (const std::vector<int64_t>& offsets :
       {std::vector<int64_t>{0, 3, 4}, {1, 3, 5}, {0, 6, 5}, {0, -1, 5}}) {
    Reference r({{3, 2}, 1, 16, true, 0});
    r.qkv = RandomFor<float>({r.num_tokens, r.stride}, 1);
    r.grad_output = RandomFor<float>({r.num_tokens, 1, 16}, 2);
    std::copy(offsets.begin(), offsets.end(), r.offsets.values.begin());
    EXPECT_DEATH(DeviceRun<float>(r, device()), "trapped");
    EXPECT_DEATH(DeviceRun<BFloat16>(r, device()), "trapped");
  }
}
// Sequence 1 ends before it begins. The other sequences cover all tokens, some of them twice.
TEST_F(AttentionDeviceTest, OffsetsThatFallDie) {
  Reference r({{300, 0, 200}, 1, 16, true, 0});
  r.qkv = RandomFor<float>({r.num_tokens, r.stride}, 1);
  r.grad_output = RandomFor<float>({r.num_tokens, 1, 16}, 2);
  r.offsets[2] = 200;
  EXPECT_DEATH(DeviceRun<float>(r, device()), "trapped");
  EXPECT_DEATH(DeviceRun<BFloat16>(r, device()), "trapped");
}
#endif

TEST_F(AttentionDeviceTest, ArgumentsThatDoNotFitDie) {
  Array<float> x({3, 2, 16}), narrow({3, 2, 8}), one({3, 1, 16}), three({3, 3, 16}), sums({3, 2});
  Array<int64_t> offsets({2}), row_index({3});
  AttentionForwardArgs good;
  good.q = good.k = good.v = good.output = x;
  good.offsets = offsets;
  good.row_index = row_index;
  good.log_sum_exp = sums;
  const auto run = [&](const auto& change) {
    AttentionForwardArgs args = good;
    change(args);
    cuda::AttentionForward(args, device());
  };
  EXPECT_DEATH(run([&](auto& args) { args.k = narrow; }), "\\[3, 2, 8\\] and q \\[3, 2, 16\\]");
  EXPECT_DEATH(run([&](auto& args) { args.k = args.v = three; }), "\\[3, 3, 16\\] and q");
  EXPECT_DEATH(run([&](auto& args) { args.k = one; }), "\\[3, 2, 16\\] and \\[3, 1, 16\\]");
  EXPECT_DEATH(run([&](auto& args) { args.first_head = 1; }), "2 heads from 1 of 2");
  EXPECT_DEATH(run([&](auto& args) { args.v.strides[0] = 16; }), "strides \\[16, 16, 1\\]");
  EXPECT_DEATH(run([&](auto& args) { args.q.strides[1] = 17; }), "strides \\[32, 17, 1\\]");
  EXPECT_DEATH(run([&](auto& args) { args.row_index = offsets; }), "row_index");
  EXPECT_DEATH(run([&](auto& args) { args.log_sum_exp = x; }), "log_sum_exp");
  EXPECT_DEATH(run([&](auto& args) { args.scale = 0; }), "scale > 0");
  EXPECT_DEATH(run([&](auto& args) { args.dropout = 1; }), "dropout");
  EXPECT_DEATH(run([&](auto& args) { args.dropout = 0.5f; }), "max_length");
}

TEST_F(AttentionDeviceTest, HeadsTooDeepForTheDeviceDie) {
  Array<float> x({1, 1, 129});
  AttentionForwardArgs args;
  args.q = args.k = args.v = args.output = x;
  args.offsets = args.row_index = args.log_sum_exp = x;
  EXPECT_DEATH(cuda::AttentionForward(args, device()),
               "heads of 129 elements; on CUDA they have 1 to 128");
}

}  // namespace
}  // namespace tandem::kernels
