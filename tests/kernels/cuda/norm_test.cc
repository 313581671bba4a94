#include "kernels/norm.h"

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/row_plan.h"
#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

class CudaNormTest : public DeviceTest {};

// Covers all kinds of team, odd rows and whole packs, rows that exceed a block's registers, and
// more rows than blocks.
struct Size {
  int64_t rows, columns;
};
const Size kSizes[] = {{0, 8},    {1, 1},    {3, 3},    {17, 17},  {65, 64},  {3, 65},    {33, 128},
                       {5, 200},  {9, 256},  {7, 257},  {4, 512},  {3, 768},  {2, 1000},  {2, 1024},
                       {3, 2056}, {3, 4100}, {2, 4099}, {2, 8216}, {4500, 4}, {2300, 24}, {1, 5}};

enum class Kind { LAYER, RMS };

// Results of a forward and a backward pass. Only layer norm has the mean and beta's gradient.
template <class S, class O, class Sums>
struct Results {
  Array<O> output;
  Array<Sums> mean, inverse;
  Array<S> grad_input;
  Array<Sums> grad_gamma, grad_beta;
};

struct Inputs {
  Array<double> x, gamma, beta, grad_output;
};

template <class S, class O>
Inputs InputsFor(const Size& size) {
  Inputs in{RandomFor<S>({size.rows, size.columns}, 1, 2), RandomFor<float>({size.columns}, 2),
            RandomFor<float>({size.columns}, 3), RandomFor<O>({size.rows, size.columns}, 4)};
  for (int64_t i = 0; i < in.x.size(); ++i) in.x[i] += 0.5;  // the mean matters
  in.x = Widened(RoundedTo<S>(in.x));
  return in;
}

Results<double, double, double> Reference(Kind kind, Inputs in, bool affine, Stream& cpu) {
  const int64_t rows = in.x.shape[0], columns = in.x.shape[1];
  Results<double, double, double> r{Array<double>({rows, columns}), Array<double>({rows}),
                                    Array<double>({rows}),          Array<double>({rows, columns}),
                                    Array<double>({columns}),       Array<double>({columns})};
  const ArrayView gamma = affine ? in.gamma.view() : ArrayView(),
                  beta = affine ? in.beta.view() : ArrayView();
  const ArrayView grad_gamma = affine ? r.grad_gamma.view() : ArrayView(),
                  grad_beta = affine ? r.grad_beta.view() : ArrayView();
  if (kind == Kind::LAYER) {
    LayerNormForward({.x = in.x,
                      .gamma = gamma,
                      .beta = beta,
                      .output = r.output,
                      .mean = r.mean,
                      .inverse = r.inverse},
                     cpu);
    LayerNormBackward({.grad_output = in.grad_output,
                       .x = in.x,
                       .gamma = gamma,
                       .mean = r.mean,
                       .inverse = r.inverse,
                       .grad_input = r.grad_input,
                       .grad_gamma = grad_gamma,
                       .grad_beta = grad_beta},
                      cpu);
  } else {
    RmsNormForward({.x = in.x, .gamma = gamma, .output = r.output, .inverse = r.inverse}, cpu);
    RmsNormBackward({.grad_output = in.grad_output,
                     .x = in.x,
                     .gamma = gamma,
                     .inverse = r.inverse,
                     .grad_input = r.grad_input,
                     .grad_gamma = grad_gamma},
                    cpu);
  }
  return r;
}

template <class S, class O>
Results<S, O, float> OnTheDevice(Kind kind, const Inputs& in, bool affine, int64_t shift,
                                 Stream& stream) {
  const int64_t rows = in.x.shape[0], columns = in.x.shape[1];
  const Placed<S> x(RoundedTo<S>(in.x), shift, stream),
      grad_input(Poisoned<S>(in.x.shape), shift, stream);
  const Placed<O> output(Poisoned<O>(in.x.shape), shift, stream),
      grad_output(RoundedTo<O>(in.grad_output), shift, stream);
  const Placed<float> gamma(RoundedTo<float>(in.gamma), shift, stream),
      beta(RoundedTo<float>(in.beta), shift, stream);
  const OnDevice<float> mean(Poisoned<float>({rows}), stream),
      inverse(Poisoned<float>({rows}), stream), grad_gamma(Poisoned<float>({columns}), stream),
      grad_beta(Poisoned<float>({columns}), stream);
  const auto if_affine = [affine](const ArrayView& view) { return affine ? view : ArrayView(); };
  if (kind == Kind::LAYER) {
    cuda::LayerNormForward({.x = x,
                            .gamma = if_affine(gamma),
                            .beta = if_affine(beta),
                            .output = output,
                            .mean = mean,
                            .inverse = inverse},
                           stream);
    cuda::LayerNormBackward({.grad_output = grad_output,
                             .x = x,
                             .gamma = if_affine(gamma),
                             .mean = mean,
                             .inverse = inverse,
                             .grad_input = grad_input,
                             .grad_gamma = if_affine(grad_gamma),
                             .grad_beta = if_affine(grad_beta)},
                            stream);
  } else {
    cuda::RmsNormForward({.x = x, .gamma = if_affine(gamma), .output = output, .inverse = inverse},
                         stream);
    cuda::RmsNormBackward({.grad_output = grad_output,
                           .x = x,
                           .gamma = if_affine(gamma),
                           .inverse = inverse,
                           .grad_input = grad_input,
                           .grad_gamma = if_affine(grad_gamma)},
                          stream);
  }
  return {output.Get(),     mean.Get(),       inverse.Get(),
          grad_input.Get(), grad_gamma.Get(), grad_beta.Get()};
}

template <class S, class O>
void ExpectSame(const Results<S, O, float>& a, const Results<S, O, float>& b) {
  EXPECT_TRUE(SameBits(a.output, b.output));
  EXPECT_TRUE(SameBits(a.mean, b.mean));
  EXPECT_TRUE(SameBits(a.inverse, b.inverse));
  EXPECT_TRUE(SameBits(a.grad_input, b.grad_input));
  EXPECT_TRUE(SameBits(a.grad_gamma, b.grad_gamma));
  EXPECT_TRUE(SameBits(a.grad_beta, b.grad_beta));
}

template <class S, class O>
void ExpectEverySizeMatches(Kind kind, Stream& cpu, Stream& device) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.rows << " rows of " << size.columns);
    const Inputs in = InputsFor<S, O>(size);
    for (const bool affine : {true, false}) {
      SCOPED_TRACE(affine ? "with gamma and beta" : "without gamma and beta");
      const auto wanted = Reference(kind, in, affine, cpu);
      const auto found = OnTheDevice<S, O>(kind, in, affine, 0, device);
      EXPECT_LT(RelativeError(found.output, wanted.output), kDeviceTolerance<O>);
      EXPECT_LT(RelativeError(found.inverse, wanted.inverse), kDeviceTolerance<float>);
      // A row of one column has no gradient: the reference's value is rounding.
      if (size.columns > 1) {
        EXPECT_LT(RelativeError(found.grad_input, wanted.grad_input), kDeviceTolerance<S>);
      }
      if (kind == Kind::LAYER) {
        EXPECT_LT(RelativeError(found.mean, wanted.mean), kDeviceTolerance<float>);
      }
      if (affine) {
        EXPECT_LT(RelativeError(found.grad_gamma, wanted.grad_gamma), kDeviceTolerance<float>);
      }
      if (affine && kind == Kind::LAYER) {
        EXPECT_LT(RelativeError(found.grad_beta, wanted.grad_beta), kDeviceTolerance<float>);
      }
    }
  }
}

TEST_F(CudaNormTest, LayerNormOfF32MatchesF64ForEverySize) {
  ExpectEverySizeMatches<float, float>(Kind::LAYER, cpu(), device());
}
TEST_F(CudaNormTest, LayerNormOfBf16MatchesF64ForEverySize) {
  ExpectEverySizeMatches<BFloat16, BFloat16>(Kind::LAYER, cpu(), device());
}
TEST_F(CudaNormTest, LayerNormOfF32ToBf16MatchesF64ForEverySize) {
  ExpectEverySizeMatches<float, BFloat16>(Kind::LAYER, cpu(), device());
}
TEST_F(CudaNormTest, RmsNormOfF32MatchesF64ForEverySize) {
  ExpectEverySizeMatches<float, float>(Kind::RMS, cpu(), device());
}
TEST_F(CudaNormTest, RmsNormOfBf16MatchesF64ForEverySize) {
  ExpectEverySizeMatches<BFloat16, BFloat16>(Kind::RMS, cpu(), device());
}
TEST_F(CudaNormTest, RmsNormOfF32ToBf16MatchesF64ForEverySize) {
  ExpectEverySizeMatches<float, BFloat16>(Kind::RMS, cpu(), device());
}

template <class S, class O>
void ExpectSameBitsEverywhere(Stream& device) {
  for (const Size& size : {Size{37, 64}, Size{9, 512}, Size{9, 408}, Size{5, 1544}, Size{7, 77},
                           Size{3, 700}, Size{2, 8216}}) {
    SCOPED_TRACE(testing::Message() << size.rows << " rows of " << size.columns);
    const Inputs in = InputsFor<S, O>(size);
    for (const Kind kind : {Kind::LAYER, Kind::RMS}) {
      const auto once = OnTheDevice<S, O>(kind, in, true, 0, device);
      ExpectSame(once, OnTheDevice<S, O>(kind, in, true, 0, device));
      ExpectSame(once, OnTheDevice<S, O>(kind, in, true, 1, device));
    }
  }
}

TEST_F(CudaNormTest, F32HasTheSameBitsInTwoRunsAndInMisalignedPlaces) {
  ExpectSameBitsEverywhere<float, float>(device());
}
TEST_F(CudaNormTest, Bf16HasTheSameBitsInTwoRunsAndInMisalignedPlaces) {
  ExpectSameBitsEverywhere<BFloat16, BFloat16>(device());
}
TEST_F(CudaNormTest, F32ToBf16HasTheSameBitsInTwoRunsAndInMisalignedPlaces) {
  ExpectSameBitsEverywhere<float, BFloat16>(device());
}

TEST_F(CudaNormTest, ARowAloneHasTheBitsItHasAmongOthers) {
  for (const int64_t columns : {24, 300, 1544}) {
    const Inputs in = InputsFor<float, float>({21, columns});
    Inputs one = in;
    const int64_t row = 13;
    one.x = Array<double>({1, columns});
    one.grad_output = one.x;
    std::copy_n(in.x.values.begin() + row * columns, columns, one.x.values.begin());
    std::copy_n(in.grad_output.values.begin() + row * columns, columns,
                one.grad_output.values.begin());
    const auto all = OnTheDevice<float, float>(Kind::LAYER, in, true, 0, device());
    const auto alone = OnTheDevice<float, float>(Kind::LAYER, one, true, 0, device());
    EXPECT_EQ(std::memcmp(&all.output.values[row * columns], alone.output.values.data(),
                          columns * sizeof(float)),
              0);
    EXPECT_EQ(std::memcmp(&all.grad_input.values[row * columns], alone.grad_input.values.data(),
                          columns * sizeof(float)),
              0);
  }
}

TEST_F(CudaNormTest, OneOfTheTwoColumnGradientsAloneEqualsThatOfBoth) {
  const Inputs in = InputsFor<float, float>({40, 72});
  const auto both = OnTheDevice<float, float>(Kind::LAYER, in, true, 0, device());
  const OnDevice<float> x(RoundedTo<float>(in.x), device()),
      gamma(RoundedTo<float>(in.gamma), device()), mean(both.mean, device()),
      inverse(both.inverse, device()), grad_output(RoundedTo<float>(in.grad_output), device());
  for (const bool want_gamma : {true, false}) {
    const OnDevice<float> sum(Poisoned<float>({72}), device()),
        grad_input(Poisoned<float>({40, 72}), device());
    LayerNormBackwardArgs args{.grad_output = grad_output,
                               .x = x,
                               .gamma = gamma,
                               .mean = mean,
                               .inverse = inverse,
                               .grad_input = grad_input,
                               .grad_gamma = {},
                               .grad_beta = {}};
    (want_gamma ? args.grad_gamma : args.grad_beta) = sum;
    cuda::LayerNormBackward(args, device());
    EXPECT_TRUE(SameBits(sum.Get(), want_gamma ? both.grad_gamma : both.grad_beta));
    EXPECT_TRUE(SameBits(grad_input.Get(), both.grad_input));
  }
}

TEST_F(CudaNormTest, TheInputsGradientMayReplaceTheOutputs) {
  for (const int64_t columns : {64, 8216}) {
    const Inputs in = InputsFor<float, float>({5, columns});
    const auto apart = OnTheDevice<float, float>(Kind::RMS, in, true, 0, device());
    const OnDevice<float> x(RoundedTo<float>(in.x), device()),
        gamma(RoundedTo<float>(in.gamma), device()), inverse(apart.inverse, device()),
        grad(RoundedTo<float>(in.grad_output), device()),
        grad_gamma(Poisoned<float>({columns}), device());
    cuda::RmsNormBackward({.grad_output = grad,
                           .x = x,
                           .gamma = gamma,
                           .inverse = inverse,
                           .grad_input = grad,
                           .grad_gamma = grad_gamma},
                          device());
    EXPECT_TRUE(SameBits(grad.Get(), apart.grad_input));
    EXPECT_TRUE(SameBits(grad_gamma.Get(), apart.grad_gamma));
  }
}

TEST_F(CudaNormTest, ArraysOfAnotherSizeWithGapsOrWithoutRoomForTheMeanAreRefused) {
  const OnDevice<float> x(Array<float>({4, 8}, 1), device()),
      output(Poisoned<float>({4, 8}), device());
  const OnDevice<float> inverse(Poisoned<float>({4}), device()),
      mean(Poisoned<float>({4}), device());
  const LayerNormForwardArgs args{
      .x = x, .gamma = {}, .beta = {}, .output = output, .mean = mean, .inverse = inverse};
  LayerNormForwardArgs wrong = args;
  wrong.output = ArrayView(output.data(), DType::F32, {4, 7});
  EXPECT_DEATH(cuda::LayerNormForward(wrong, device()), "28 vs 32");
  wrong = args;
  wrong.x = ArrayView(x.data(), DType::F32, {4, 4}, {8, 1});
  EXPECT_DEATH(cuda::LayerNormForward(wrong, device()), "is_dense");
  wrong = args;
  wrong.mean = {};
  EXPECT_DEATH(cuda::LayerNormForward(wrong, device()), "mean");
}

TEST(RowPlanTest, ARowFitsInTheRegistersOfItsTeamUpToTheWidestBlock) {
  for (const int widest : {4, 8}) {
    for (int64_t columns = 0; columns < 10000; columns += columns < 600 ? 1 : 37) {
      const cuda::RowPlan plan = cuda::PlanRows(columns, widest, 512);
      SCOPED_TRACE(testing::Message() << columns << " columns, packs of " << plan.pack);
      EXPECT_EQ(columns % plan.pack, 0);
      EXPECT_TRUE(plan.pack == widest || columns % widest != 0);
      const int64_t held = int64_t{plan.lanes == 0 ? plan.threads : plan.lanes} * plan.pack *
                           cuda::PacksHeld(plan.pack);
      EXPECT_TRUE(columns <= held || (plan.lanes == 0 && plan.threads == 512));
      EXPECT_EQ(plan.threads % 32, 0);
      EXPECT_EQ(plan.rows_per_block, plan.lanes == 0 ? 1 : plan.threads / plan.lanes);
    }
  }
}

TEST(RowPlanTest, BlocksCoverAllRowsOnce) {
  for (const int64_t columns : {64, 300, 2048}) {
    const cuda::RowPlan plan = cuda::PlanRows(columns, 4, 512);
    for (const int64_t rows : {int64_t{0}, int64_t{1}, int64_t{17}, int64_t{528}, int64_t{529},
                               int64_t{16384}, int64_t{1} << 40}) {
      const cuda::PartialPlan partial = cuda::PlanPartials(plan, rows);
      EXPECT_GE(partial.blocks * partial.rows_per_block, rows);
      EXPECT_LT((partial.blocks - 1) * partial.rows_per_block, rows);
      EXPECT_LE(partial.blocks * plan.threads, 132 * 512);
      EXPECT_LE(cuda::RowBlocks(plan, rows), (int64_t{1} << 31) - 1);
    }
  }
}

}  // namespace
}  // namespace tandem::kernels
