#include "kernels/loss.h"

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/plan/loss_plan.h"
#include "tests/kernels/cuda/placed_array.h"

namespace tandem::kernels {
namespace {

class CudaLossTest : public DeviceTest {};

struct Size {
  int64_t rows, classes;
};
// Sizes like those of CudaSoftmaxTest: the last ones do not fit in registers and shared memory.
const Size kSizes[] = {{0, 5},    {1, 1},     {3, 3},     {17, 17},   {65, 64},   {33, 65},
                       {5, 136},  {9, 512},   {4, 257},   {3, 1000},  {300, 8},   {2, 4104},
                       {2, 4099}, {1, 12000}, {1, 33024}, {1, 58000}, {1, 29001}, {1, 53257}};

Array<int64_t> Targets(int64_t rows, int64_t classes) {
  Array<int64_t> target({rows});
  for (int64_t r = 0; r < rows; ++r)
    target[r] = static_cast<int64_t>(RandomBelow({3, 4}, 0, static_cast<uint64_t>(r), classes));
  return target;
}

template <class T>
struct LossAndGradient {
  Array<float> loss;
  Array<T> grad;
};

enum class Gradient { NONE, APART, IN_PLACE };

// `grad` is full of NaN if there is none.
template <class T>
LossAndGradient<T> CrossEntropyOnTheDevice(const Array<double>& logits,
                                           const Array<int64_t>& target, Gradient gradient,
                                           int64_t shift, Stream& stream) {
  const Placed<T> x(RoundedTo<T>(logits), shift, stream),
      apart(Poisoned<T>(logits.shape), shift, stream);
  const Placed<T>& grad = gradient == Gradient::IN_PLACE ? x : apart;
  const OnDevice<int64_t> targets(target, stream);
  const OnDevice<float> loss(Poisoned<float>(target.shape), stream);
  cuda::CrossEntropy({.logits = x,
                      .target = targets,
                      .loss = loss,
                      .grad = gradient == Gradient::NONE ? ArrayView() : ArrayView(grad)},
                     stream);
  return {loss.Get(), grad.Get()};
}

template <class T>
void ExpectCrossEntropyMatches(Stream& cpu, Stream& device) {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(testing::Message() << size.rows << " rows of " << size.classes);
    Array<double> logits = RandomFor<T>({size.rows, size.classes}, 1, 5), loss({size.rows}),
                  grad(logits.shape);
    Array<int64_t> target = Targets(size.rows, size.classes);
    CrossEntropy({.logits = logits, .target = target, .loss = loss, .grad = grad}, cpu);
    const auto found = CrossEntropyOnTheDevice<T>(logits, target, Gradient::APART, 0, device);
    EXPECT_LT(RelativeError(found.loss, loss), kDeviceTolerance<float>);
    EXPECT_LT(RelativeError(found.grad, grad), kDeviceTolerance<T>);
    for (const int64_t shift : {0, 1}) {
      const auto in_place =
          CrossEntropyOnTheDevice<T>(logits, target, Gradient::IN_PLACE, shift, device);
      EXPECT_TRUE(SameBits(in_place.loss, found.loss));
      EXPECT_TRUE(SameBits(in_place.grad, found.grad));
    }
    const auto none = CrossEntropyOnTheDevice<T>(logits, target, Gradient::NONE, 0, device);
    EXPECT_TRUE(SameBits(none.loss, found.loss));
    EXPECT_TRUE(SameBits(none.grad, Poisoned<T>(logits.shape)));
  }
}

TEST_F(CudaLossTest, CrossEntropyOfF32MatchesF64InAllPlaces) {
  ExpectCrossEntropyMatches<float>(cpu(), device());
}
TEST_F(CudaLossTest, CrossEntropyOfBf16MatchesF64InAllPlaces) {
  ExpectCrossEntropyMatches<BFloat16>(cpu(), device());
}

TEST_F(CudaLossTest, CrossEntropyOfLargeAndInfiniteLogits) {
  for (const int64_t classes : {40, 700}) {
    Array<double> logits = RandomFor<float>({2, classes}, 1, 1000), loss({2}), grad(logits.shape);
    for (int64_t i = 0; i < classes; i += 3) logits[i] = -std::numeric_limits<double>::infinity();
    Array<int64_t> target({2});
    target[0] = 1;
    target[1] = classes - 1;
    CrossEntropy({.logits = logits, .target = target, .loss = loss, .grad = grad}, cpu());
    const auto found = CrossEntropyOnTheDevice<float>(logits, target, Gradient::APART, 0, device());
    EXPECT_LT(RelativeError(found.loss, loss), kDeviceTolerance<float>);
    EXPECT_LT(RelativeError(found.grad, grad), kDeviceTolerance<float>);
  }
}

TEST_F(CudaLossTest, BinaryCrossEntropyMatchesF64WithoutOverflow) {
  for (const int64_t count : {0, 1, 3, 17, 64, 65, 1023, 5000}) {
    SCOPED_TRACE(count);
    Array<double> logits = RandomFor<float>({count}, 1, 5), label({count}), loss({count}),
                  grad({count});
    for (int64_t i = 0; i < count; ++i) label[i] = i % 3 == 0 ? 1 : i % 3 == 1 ? 0 : 0.25;
    if (count > 3) {
      logits[0] = 200;
      logits[1] = -200;
      logits[2] = 1e30;
      logits[3] = -1e30;
      label[2] = 1;
      label[3] = 0;
    }
    BinaryCrossEntropy({.logits = logits, .label = label, .loss = loss, .grad = grad}, cpu());
    Array<float> losses, grads;
    for (const int64_t shift : {0, 1}) {
      const Placed<float> x(RoundedTo<float>(logits), shift, device()),
          y(RoundedTo<float>(label), shift, device()),
          out(Poisoned<float>({count}), shift, device()),
          gradient(Poisoned<float>({count}), shift, device());
      cuda::BinaryCrossEntropy({.logits = x, .label = y, .loss = out, .grad = gradient}, device());
      if (shift == 0) {
        losses = out.Get();
        grads = gradient.Get();
        EXPECT_LT(RelativeError(losses, loss), kDeviceTolerance<float>);
        EXPECT_LT(RelativeError(grads, grad), kDeviceTolerance<float>);
      }
      EXPECT_TRUE(SameBits(out.Get(), losses));
      EXPECT_TRUE(SameBits(gradient.Get(), grads));
      cuda::BinaryCrossEntropy({.logits = x, .label = y, .loss = out, .grad = {}}, device());
      EXPECT_TRUE(SameBits(out.Get(), losses));
      cuda::BinaryCrossEntropy({.logits = x, .label = y, .loss = out, .grad = x}, device());
      EXPECT_TRUE(SameBits(x.Get(), grads));
    }
  }
}

// The smallest losses keep their digits, which log(1 + e) would lose.
TEST_F(CudaLossTest, BinaryCrossEntropyOfAConfidentRightAnswerIsAccurate) {
  Array<double> logits({2}), label({2}), loss({2});
  logits[0] = 30;
  label[0] = 1;
  logits[1] = -30;
  BinaryCrossEntropy({.logits = logits, .label = label, .loss = loss, .grad = {}}, cpu());
  const OnDevice<float> x(RoundedTo<float>(logits), device()), y(RoundedTo<float>(label), device()),
      out(Poisoned<float>({2}), device());
  cuda::BinaryCrossEntropy({.logits = x, .label = y, .loss = out, .grad = {}}, device());
  EXPECT_LT(RelativeError(out.Get(), loss), kDeviceTolerance<float>);
}

// hidden [rows, dim], weight, bias, all in f64 and representable in the device's types.
struct Problem {
  Array<double> hidden, weight, bias;
  bool table;
  Array<int64_t> target;
};

template <class T>
Problem ProblemFor(int64_t rows, int64_t dim, int64_t classes, bool table) {
  return {RandomFor<T>({rows, dim}, 1, 2),
          RandomFor<T>(table ? Shape{classes, dim} : Shape{dim, classes}, 2),
          RandomFor<float>({classes}, 3), table, Targets(rows, classes)};
}

struct Wanted {
  bool hidden = true, weight = true, bias = true;
};

template <class Sums, class Hidden>
struct Solution {
  Array<Sums> loss;
  Array<Hidden> grad_hidden;
  Array<Sums> grad_weight, grad_bias;
};

Solution<double, double> Reference(Problem p, bool with_bias, Stream& cpu) {
  Solution<double, double> s{Array<double>(p.target.shape), Array<double>(p.hidden.shape),
                             Array<double>(p.weight.shape), Array<double>(p.bias.shape)};
  LinearCrossEntropy({.hidden = p.hidden,
                      .weight = p.weight,
                      .weight_is_table = p.table,
                      .bias = with_bias ? p.bias.view() : ArrayView(),
                      .target = p.target,
                      .loss = s.loss,
                      .grad_hidden = s.grad_hidden,
                      .grad_weight = s.grad_weight,
                      .grad_bias = s.grad_bias},
                     cpu);
  return s;
}

// Unwanted outputs stay NaN.
template <class T, class Hidden>
Solution<float, Hidden> Solve(const Problem& p, bool with_bias, const Wanted& wanted,
                              int64_t chunk_rows, Stream& stream) {
  const OnDevice<T> hidden(RoundedTo<T>(p.hidden), stream), weight(RoundedTo<T>(p.weight), stream);
  const OnDevice<float> bias(RoundedTo<float>(p.bias), stream),
      loss(Poisoned<float>(p.target.shape), stream),
      grad_weight(Poisoned<float>(p.weight.shape), stream),
      grad_bias(Poisoned<float>(p.bias.shape), stream);
  const OnDevice<Hidden> grad_hidden(Poisoned<Hidden>(p.hidden.shape), stream);
  const OnDevice<int64_t> target(p.target, stream);
  const auto if_wanted = [](bool is, const ArrayView& view) { return is ? view : ArrayView(); };
  cuda::LinearCrossEntropyInChunks({.hidden = hidden,
                                    .weight = weight,
                                    .weight_is_table = p.table,
                                    .bias = if_wanted(with_bias, bias),
                                    .target = target,
                                    .loss = loss,
                                    .grad_hidden = if_wanted(wanted.hidden, grad_hidden),
                                    .grad_weight = if_wanted(wanted.weight, grad_weight),
                                    .grad_bias = if_wanted(wanted.bias, grad_bias)},
                                   chunk_rows, stream);
  return {loss.Get(), grad_hidden.Get(), grad_weight.Get(), grad_bias.Get()};
}

template <class Hidden>
void ExpectSame(const Solution<float, Hidden>& a, const Solution<float, Hidden>& b) {
  EXPECT_TRUE(SameBits(a.loss, b.loss));
  EXPECT_TRUE(SameBits(a.grad_hidden, b.grad_hidden));
  EXPECT_TRUE(SameBits(a.grad_weight, b.grad_weight));
  EXPECT_TRUE(SameBits(a.grad_bias, b.grad_bias));
}

template <class T, class Hidden>
void ExpectLinearCrossEntropyMatches(Stream& cpu, Stream& device) {
  struct {
    int64_t rows, dim, classes, chunk_rows;
  } const cases[] = {{0, 3, 5, 128},    {1, 1, 1, 128},    {3, 17, 2, 128},   {17, 64, 65, 5},
                     {65, 16, 520, 32}, {40, 33, 257, 40}, {300, 24, 64, 128}};
  for (const auto& c : cases) {
    for (const bool table : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.rows << " rows, dim " << c.dim << ", " << c.classes
                                      << " classes" << (table ? ", table" : ""));
      const Problem p = ProblemFor<T>(c.rows, c.dim, c.classes, table);
      for (const bool with_bias : {true, false}) {
        const auto wanted = Reference(p, with_bias, cpu);
        const auto found = Solve<T, Hidden>(p, with_bias, {}, c.chunk_rows, device);
        // With one class the loss and all gradients are 0 except for rounding, so relative errors
        // mean nothing.
        if (c.classes > 1) {
          EXPECT_LT(RelativeError(found.loss, wanted.loss), kDeviceTolerance<float>);
          EXPECT_LT(RelativeError(found.grad_hidden, wanted.grad_hidden), kDeviceTolerance<T>);
          EXPECT_LT(RelativeError(found.grad_weight, wanted.grad_weight), kDeviceTolerance<T>);
          EXPECT_LT(RelativeError(found.grad_bias, wanted.grad_bias), kDeviceTolerance<T>);
        }
        ExpectSame(found, Solve<T, Hidden>(p, with_bias, {}, c.chunk_rows, device));
      }
    }
  }
}

// The loss in two halves: the device has classes first .. first + classes - 1 of all of them, and
// targets may be elsewhere.
template <class T>
void ExpectHalvesMatch(Stream& cpu, Stream& device) {
  struct {
    int64_t rows, dim, classes, first, all;
  } const cases[] = {{0, 3, 5, 0, 7},       {1, 1, 1, 3, 5},        {17, 64, 65, 65, 130},
                     {65, 16, 520, 0, 777}, {40, 33, 257, 13, 290}, {9, 24, 4099, 100, 8200}};
  for (const auto& c : cases) {
    for (const bool table : {false, true}) {
      SCOPED_TRACE(testing::Message() << c.rows << " rows, dim " << c.dim << ", " << c.classes
                                      << " classes" << (table ? ", table" : ""));
      Problem p = ProblemFor<T>(c.rows, c.dim, c.classes, table);
      p.target = Targets(c.rows, c.all);
      // Any sum over all classes that is not below the one here.
      Array<double> log_sum({c.rows}), target_logit({c.rows}), given({c.rows}),
          grad_hidden(p.hidden.shape), grad_weight(p.weight.shape), grad_bias(p.bias.shape);
      LinearLogSums({{p.hidden, p.weight, table, p.bias, p.target, c.first}, log_sum, target_logit},
                    cpu);
      for (int64_t r = 0; r < c.rows; ++r)
        given[r] = static_cast<float>(log_sum[r] + 0.1 * static_cast<double>(r % 4));
      LinearCrossEntropyGradients({{p.hidden, p.weight, table, p.bias, p.target, c.first},
                                   given,
                                   grad_hidden,
                                   grad_weight,
                                   grad_bias},
                                  cpu);
      const OnDevice<T> hidden(RoundedTo<T>(p.hidden), device),
          weight(RoundedTo<T>(p.weight), device), to_hidden(Poisoned<T>(p.hidden.shape), device);
      const OnDevice<float> bias(RoundedTo<float>(p.bias), device),
          sums(RoundedTo<float>(given), device), found_sum(Poisoned<float>({c.rows}), device),
          found_logit(Poisoned<float>({c.rows}), device),
          to_weight(Poisoned<float>(p.weight.shape), device),
          to_bias(Poisoned<float>(p.bias.shape), device);
      const OnDevice<int64_t> target(p.target, device);
      const LinearClassesArgs args{hidden, weight, table, bias, target, c.first};
      LinearLogSums({args, found_sum, found_logit}, device);
      LinearCrossEntropyGradients({args, sums, to_hidden, to_weight, to_bias}, device);
      if (c.rows > 0) {
        EXPECT_LT(RelativeError(found_sum.Get(), log_sum), kDeviceTolerance<float>);
        EXPECT_LT(RelativeError(found_logit.Get(), target_logit), kDeviceTolerance<float>);
        EXPECT_LT(RelativeError(to_hidden.Get(), grad_hidden), kDeviceTolerance<T>);
      }
      EXPECT_LT(RelativeError(to_weight.Get(), grad_weight), kDeviceTolerance<T>);
      EXPECT_LT(RelativeError(to_bias.Get(), grad_bias), kDeviceTolerance<T>);
    }
  }
}

TEST_F(CudaLossTest, HalvesOfALossInF32MatchF64) { ExpectHalvesMatch<float>(cpu(), device()); }
TEST_F(CudaLossTest, HalvesOfALossInBf16MatchF64) { ExpectHalvesMatch<BFloat16>(cpu(), device()); }

TEST_F(CudaLossTest, StatisticsOfRanksAreJoinedAsOnTheCpu) {
  for (const int64_t rows : {0, 1, 1000}) {
    Array<double> log_sum = RandomFor<float>({rows}, 1, 30);
    Array<double> largest = log_sum, joined({rows}), loss({rows}), exponentials({rows});
    Array<double> target_logit = RandomFor<float>({rows}, 2, 5);
    for (int64_t r = 0; r < rows; ++r) largest[r] += r % 3;
    RelativeExponentials(exponentials, log_sum, largest, cpu());
    JoinedLosses({largest, exponentials, target_logit, joined, loss}, cpu());
    const OnDevice<float> sums(RoundedTo<float>(log_sum), device()),
        maxima(RoundedTo<float>(largest), device()),
        logits(RoundedTo<float>(target_logit), device()), powers(Poisoned<float>({rows}), device()),
        found(Poisoned<float>({rows}), device()), losses(Poisoned<float>({rows}), device());
    RelativeExponentials(powers, sums, maxima, device());
    JoinedLosses({maxima, powers, logits, found, losses}, device());
    if (rows == 0) continue;
    EXPECT_LT(RelativeError(powers.Get(), exponentials), kDeviceTolerance<float>);
    EXPECT_LT(RelativeError(found.Get(), joined), kDeviceTolerance<float>);
    EXPECT_LT(RelativeError(losses.Get(), loss), kDeviceTolerance<float>);
  }
}

TEST_F(CudaLossTest, LinearCrossEntropyOfF32MatchesF64) {
  ExpectLinearCrossEntropyMatches<float, float>(cpu(), device());
}
TEST_F(CudaLossTest, LinearCrossEntropyOfBf16MatchesF64) {
  ExpectLinearCrossEntropyMatches<BFloat16, BFloat16>(cpu(), device());
}
TEST_F(CudaLossTest, LinearCrossEntropyOfBf16ToF32MatchesF64) {
  ExpectLinearCrossEntropyMatches<BFloat16, float>(cpu(), device());
}

template <class T>
void ExpectSomeGradientsEqualThoseOfAll(Stream& device) {
  const Problem p = ProblemFor<T>(50, 8, 72, true);
  const auto all = Solve<T, T>(p, true, {}, 16, device);
  for (int some = 0; some < 8; ++some) {
    SCOPED_TRACE(some);
    const Wanted wanted{(some & 1) != 0, (some & 2) != 0, (some & 4) != 0};
    auto left = all;
    if (!wanted.hidden) left.grad_hidden = Poisoned<T>(all.grad_hidden.shape);
    if (!wanted.weight) left.grad_weight = Poisoned<float>(all.grad_weight.shape);
    if (!wanted.bias) left.grad_bias = Poisoned<float>(all.grad_bias.shape);
    ExpectSame(left, Solve<T, T>(p, true, wanted, 16, device));
  }
}

TEST_F(CudaLossTest, SomeGradientsOfF32AloneEqualThoseOfAll) {
  ExpectSomeGradientsEqualThoseOfAll<float>(device());
}
TEST_F(CudaLossTest, SomeGradientsOfBf16AloneEqualThoseOfAll) {
  ExpectSomeGradientsEqualThoseOfAll<BFloat16>(device());
}

TEST_F(CudaLossTest, TheOperationTakesItsChunksFromTheShape) {
  const Problem p = ProblemFor<float>(20, 4, 9, false);
  const auto wanted =
      Solve<float, float>(p, true, {}, cuda::CrossEntropyChunkRows(20, 9), device());
  const OnDevice<float> hidden(RoundedTo<float>(p.hidden), device()),
      weight(RoundedTo<float>(p.weight), device()), bias(RoundedTo<float>(p.bias), device()),
      loss(Poisoned<float>({20}), device());
  const OnDevice<int64_t> target(p.target, device());
  cuda::LinearCrossEntropy(
      {.hidden = hidden, .weight = weight, .bias = bias, .target = target, .loss = loss}, device());
  EXPECT_TRUE(SameBits(loss.Get(), wanted.loss));
}

TEST(LossPlanTest, ChunksAreWholeTilesWithinTheBoundAndOfOneSize) {
  for (const int64_t classes :
       {int64_t{1}, int64_t{1000}, int64_t{50304}, int64_t{128256}, int64_t{10} << 20}) {
    for (const int64_t rows : {0, 1, 128, 129, 5000, 16384, 100000}) {
      const int64_t chunk = cuda::CrossEntropyChunkRows(rows, classes);
      SCOPED_TRACE(testing::Message() << rows << " rows, " << classes << " classes: " << chunk);
      EXPECT_EQ(chunk % 128, 0);
      EXPECT_TRUE(chunk * classes * 4 <= 256'000'000 || chunk <= 128);
      const int64_t chunks = chunk == 0 ? 0 : (rows + chunk - 1) / chunk;
      EXPECT_GE(chunks * chunk, rows);
      EXPECT_LT(chunks * chunk - rows, 128 * std::max<int64_t>(1, chunks))
          << "the last chunk is much smaller than the others";
    }
  }
}

#ifdef TANDEM_CUDA_EMULATOR
// On a GPU the trap ends the context, and the other tests with it.
TEST_F(CudaLossTest, ATargetThatIsNoClassStopsTheKernel) {
  const Array<double> logits = RandomFor<float>({2, 5}, 1);
  for (const int64_t bad : {-1, 5}) {
    Array<int64_t> target({2});
    target[1] = bad;
    EXPECT_DEATH(CrossEntropyOnTheDevice<float>(logits, target, Gradient::APART, 0, device()),
                 "trapped");
  }
}
#endif

}  // namespace
}  // namespace tandem::kernels
