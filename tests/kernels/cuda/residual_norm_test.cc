// Norms of x + Drop(y) on a device, in one kernel each way, compared with the CPU's f64 instance,
// whose dropout has the same bits.
#include "kernels/cuda/kernels.h"
#include "kernels/norm.h"
#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

constexpr RandomKey kKey{42, 7};
constexpr uint64_t kStep = 9;

// Covers every kind of team, odd columns and whole packs, rows that begin anywhere in a block of
// random numbers, and rows wider than registers.
struct Size {
  int64_t rows, columns;
};
const Size kSizes[] = {{0, 8},    {1, 1},    {3, 3},    {17, 17},  {65, 64},  {3, 65},
                       {33, 124}, {5, 200},  {9, 256},  {7, 257},  {4, 516},  {3, 768},
                       {2, 1000}, {3, 2056}, {3, 4100}, {2, 8216}, {2300, 24}};

struct Case {
  bool layer;
  float probability;
  bool has_others;  // the sum's gradient has another part
};

// Row indices far apart, in no order.
Array<int64_t> RowIndex(int64_t rows) {
  Array<int64_t> index({rows});
  for (int64_t r = 0; r < rows; ++r) index[r] = r % 3 == 0 ? r * 1000003 : rows - r;
  return index;
}

template <class S, class O>
struct Inputs {
  explicit Inputs(const Size& size)
      : x(RandomFor<S>({size.rows, size.columns}, 1, 2)),
        grad_sum(RandomFor<S>({size.rows, size.columns}, 2)),
        y(RandomFor<O>({size.rows, size.columns}, 3, 2)),
        grad_output(RandomFor<O>({size.rows, size.columns}, 4)),
        gamma(RandomFor<float>({size.columns}, 5)),
        beta(RandomFor<float>({size.columns}, 6)),
        row_index(RowIndex(size.rows)) {}

  Array<double> x, grad_sum, y, grad_output, gamma, beta;
  Array<int64_t> row_index;
};

template <class S, class O, class M>
struct Results {
  Array<S> sum;
  Array<O> output;
  Array<S> grad_x;
  Array<O> grad_y;
  Array<M> grad_gamma, grad_beta;
};

// The two passes. `forward` and `backward` take LayerNorm's arguments, which include those of RMS
// norm.
template <class View>
void RunBoth(const Case& c, const View& x, const View& y, const View& gamma, const View& beta,
             const View& grad_sum, const View& grad_output, const View& sum, const View& output,
             const View& mean, const View& inverse, const View& grad_x, const View& grad_y,
             const View& grad_gamma, const View& grad_beta, const ResidualDropout& dropout,
             Stream& stream) {
  const ResidualForward forward{.y = y, .sum = sum, .dropout = dropout};
  const ResidualBackward backward{
      .grad_sum = c.has_others ? grad_sum : View(), .grad_y = grad_y, .dropout = dropout};
  if (c.layer) {
    kernels::LayerNormForward({.x = x,
                               .gamma = gamma,
                               .beta = beta,
                               .output = output,
                               .mean = mean,
                               .inverse = inverse,
                               .residual = forward},
                              stream);
    kernels::LayerNormBackward({.grad_output = grad_output,
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
    kernels::RmsNormForward(
        {.x = x, .gamma = gamma, .output = output, .inverse = inverse, .residual = forward},
        stream);
    kernels::RmsNormBackward({.grad_output = grad_output,
                              .x = sum,
                              .gamma = gamma,
                              .inverse = inverse,
                              .grad_input = grad_x,
                              .grad_gamma = grad_gamma,
                              .residual = backward},
                             stream);
  }
}

template <class S, class O>
Results<double, double, double> Reference(const Case& c, Inputs<S, O> in, Stream& cpu) {
  const Shape shape = in.x.shape, columns = in.gamma.shape;
  Results<double, double, double> r{Array<double>(shape),   Array<double>(shape),
                                    Array<double>(shape),   Array<double>(shape),
                                    Array<double>(columns), Array<double>(columns)};
  Array<double> mean({shape[0]}), inverse({shape[0]});
  Array<uint64_t> mask({shape[0], DropoutMaskWords(shape[1])});
  const ResidualDropout dropout{.probability = c.probability,
                                .row_index = in.row_index,
                                .key = kKey,
                                .step = kStep,
                                .mask = mask};
  RunBoth<ArrayView>(c, in.x, in.y, in.gamma, in.beta, in.grad_sum, in.grad_output, r.sum, r.output,
                     mean, inverse, r.grad_x, r.grad_y, r.grad_gamma, r.grad_beta, dropout, cpu);
  return r;
}

template <class S, class O>
Results<S, O, float> OnTheDevice(const Case& c, const Inputs<S, O>& in, int64_t shift,
                                 Stream& stream) {
  const Shape shape = in.x.shape, columns = in.gamma.shape, rows{shape[0]};
  const Placed<S> x(RoundedTo<S>(in.x), shift, stream),
      grad_sum(RoundedTo<S>(in.grad_sum), shift, stream);
  const Placed<S> sum(Poisoned<S>(shape), shift, stream), grad_x(Poisoned<S>(shape), shift, stream);
  const Placed<O> y(RoundedTo<O>(in.y), shift, stream),
      grad_output(RoundedTo<O>(in.grad_output), shift, stream);
  const Placed<O> output(Poisoned<O>(shape), shift, stream),
      grad_y(Poisoned<O>(shape), shift, stream);
  const Placed<float> gamma(RoundedTo<float>(in.gamma), shift, stream),
      beta(RoundedTo<float>(in.beta), shift, stream);
  const OnDevice<float> mean(Poisoned<float>(rows), stream), inverse(Poisoned<float>(rows), stream),
      grad_gamma(Poisoned<float>(columns), stream), grad_beta(Poisoned<float>(columns), stream);
  const OnDevice<int64_t> row_index(in.row_index, stream);
  const ResidualDropout dropout{
      .probability = c.probability, .row_index = row_index, .key = kKey, .step = kStep};
  RunBoth<ArrayView>(c, x, y, gamma, beta, grad_sum, grad_output, sum, output, mean, inverse,
                     grad_x, grad_y, grad_gamma, grad_beta, dropout, stream);
  return {sum.Get(), output.Get(), grad_x.Get(), grad_y.Get(), grad_gamma.Get(), grad_beta.Get()};
}

class CudaResidualNormTest : public DeviceTest {
 protected:
  template <class S, class O>
  void ExpectEverySizeMatches() {
    for (const Size& size : kSizes) {
      const Inputs<S, O> in(size);
      for (const Case& c : {Case{true, 0, true}, Case{true, 0.3f, true}, Case{true, 0.3f, false},
                            Case{false, 0.3f, true}}) {
        SCOPED_TRACE(testing::Message()
                     << size.rows << " rows of " << size.columns << (c.layer ? ", layer" : ", rms")
                     << ", drops " << c.probability << (c.has_others ? ", others" : ""));
        const auto wanted = Reference(c, in, cpu());
        const auto found = OnTheDevice(c, in, 0, device());
        EXPECT_LT(RelativeError(found.sum, wanted.sum), kDeviceTolerance<S>);
        EXPECT_LT(RelativeError(found.output, wanted.output), kDeviceTolerance<O>);
        // A row of one column has only the gradient from elsewhere: the rest of the reference is
        // rounding.
        if (size.columns > 1) {
          EXPECT_LT(RelativeError(found.grad_x, wanted.grad_x), kDeviceTolerance<S>);
          EXPECT_LT(RelativeError(found.grad_y, wanted.grad_y), kDeviceTolerance<O>);
        }
        EXPECT_LT(RelativeError(found.grad_gamma, wanted.grad_gamma), kDeviceTolerance<S>);
        if (c.layer) {
          EXPECT_LT(RelativeError(found.grad_beta, wanted.grad_beta), kDeviceTolerance<float>);
        }
        for (int64_t i = 0; i < wanted.grad_y.size(); ++i) {
          ASSERT_EQ(AsDouble(found.grad_y[i]) == 0, wanted.grad_y[i] == 0) << "element " << i;
        }
        const auto shifted = OnTheDevice(c, in, 1, device());
        EXPECT_TRUE(SameBits(found.sum, shifted.sum));
        EXPECT_TRUE(SameBits(found.output, shifted.output));
        EXPECT_TRUE(SameBits(found.grad_x, shifted.grad_x));
        EXPECT_TRUE(SameBits(found.grad_y, shifted.grad_y));
        EXPECT_TRUE(SameBits(found.grad_gamma, shifted.grad_gamma));
        if (HasFailure()) return;
      }
    }
  }
};

TEST_F(CudaResidualNormTest, F32MatchesF64ForEverySizeAndPlace) {
  ExpectEverySizeMatches<float, float>();
}
TEST_F(CudaResidualNormTest, Bf16MatchesF64ForEverySizeAndPlace) {
  ExpectEverySizeMatches<BFloat16, BFloat16>();
}
TEST_F(CudaResidualNormTest, F32WithBf16BesideMatchesF64ForEverySizeAndPlace) {
  ExpectEverySizeMatches<float, BFloat16>();
}

// Nothing is dropped and nothing is rounded: the sum equals Add's, and the norm equals the norm of
// the sum.
TEST_F(CudaResidualNormTest, IsTheNormOfTheSum) {
  for (const int64_t columns : {24, 65, 768, 8216}) {
    const Inputs<float, BFloat16> in({5, columns});
    const auto found = OnTheDevice({true, 0, false}, in, 0, device());
    const OnDevice<float> x(RoundedTo<float>(in.x), device()),
        gamma(RoundedTo<float>(in.gamma), device()), beta(RoundedTo<float>(in.beta), device()),
        sum(Poisoned<float>({5, columns}), device());
    const OnDevice<BFloat16> y(RoundedTo<BFloat16>(in.y), device()),
        output(Poisoned<BFloat16>({5, columns}), device());
    const OnDevice<float> mean(Poisoned<float>({5}), device()),
        inverse(Poisoned<float>({5}), device());
    kernels::Add(sum, x, y, device());
    kernels::LayerNormForward({.x = sum,
                               .gamma = gamma,
                               .beta = beta,
                               .output = output,
                               .mean = mean,
                               .inverse = inverse},
                              device());
    EXPECT_TRUE(SameBits(found.sum, sum.Get()));
    EXPECT_TRUE(SameBits(found.output, output.Get()));
  }
}

TEST_F(CudaResidualNormTest, TheGradientFromElsewhereMayBeReplaced) {
  for (const int64_t columns : {64, 65, 8216}) {
    const Inputs<float, float> in({5, columns});
    const Case c{false, 0, true};
    const auto apart = OnTheDevice(c, in, 0, device());
    const OnDevice<float> x(apart.sum, device()), gamma(RoundedTo<float>(in.gamma), device()),
        inverse(Poisoned<float>({5}), device()), output(Poisoned<float>({5, columns}), device()),
        grad(RoundedTo<float>(in.grad_sum), device()),
        grad_output(RoundedTo<float>(in.grad_output), device()),
        grad_gamma(Poisoned<float>({columns}), device());
    kernels::RmsNormForward({.x = x, .gamma = gamma, .output = output, .inverse = inverse},
                            device());
    kernels::RmsNormBackward({.grad_output = grad_output,
                              .x = x,
                              .gamma = gamma,
                              .inverse = inverse,
                              .grad_input = grad,
                              .grad_gamma = grad_gamma,
                              .residual = {.grad_sum = grad}},
                             device());
    EXPECT_TRUE(SameBits(grad.Get(), apart.grad_x));
  }
}

}  // namespace
}  // namespace tandem::kernels
