// Compares Gemm and LinearCrossEntropy with raw oneDNN, which computes the whole product in one
// call on one thread.
// The two alternate in one run, because a shared machine's speed changes from second to second.
// Shapes are those of a training step of a language model (2,048 tokens, width 256, vocabulary
// 8,192) and of a recommender (25,600 tokens, width 64).
// `ratio` is our median rate over (the raw median rate times the threads).
#include <algorithm>
#include <benchmark/benchmark.h>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/random.h"
#include "kernels/cpu/matmul/onednn_matmul.h"
#include "kernels/gemm.h"
#include "kernels/loss.h"

namespace tandem::kernels {
namespace {

template <class T>
std::vector<T> Operand(int64_t n) {
  std::vector<T> x(n);
  for (int64_t i = 0; i < n; ++i) {
    const float value = UnitFloat(RandomBits({1, 2}, 0, i)) - 0.5f;
    if constexpr (std::is_same_v<T, float>)
      x[i] = value;
    else
      x[i] = ToBFloat16(value);
  }
  return x;
}

double Median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

// Runs the two in turn. The benchmark also times `ours`.
template <class Ours, class Raw>
void Compare(benchmark::State& state, double flops, int threads, const Ours& ours, const Raw& raw) {
  std::vector<double> our_seconds, raw_seconds;
  ours();
  raw();
  for (auto _ : state) {
    const Stopwatch watch;
    ours();
    our_seconds.push_back(watch.Seconds());
    state.PauseTiming();
    const Stopwatch raw_watch;
    raw();
    raw_seconds.push_back(raw_watch.Seconds());
    state.ResumeTiming();
  }
  const double our_rate = flops / Median(our_seconds), raw_rate = flops / Median(raw_seconds);
  state.counters["GFLOP/s"] = our_rate * 1e-9;
  state.counters["raw"] = raw_rate * 1e-9;
  state.counters["ratio"] = our_rate / (raw_rate * threads);
}

// Flags: 1 transposes a, 2 transposes b. With a transposed (a weight's gradient) the result is f32,
// otherwise of the operands' type.
template <class T>
void BM_GemmToRaw(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool ta = state.range(3) & 1, tb = state.range(3) & 2;
  const int threads = static_cast<int>(state.range(4));
  ThreadPool pool(threads);
  Stream stream(&pool);
  const std::vector<T> a = Operand<T>(m * k), b = Operand<T>(k * n);
  std::vector<float> c(m * n);
  const DType result = ta ? DType::F32 : DTypeOf<T>();
  const GemmArgs args{.a = DenseView(a.data(), ta ? Shape{k, m} : Shape{m, k}),
                      .b = DenseView(b.data(), tb ? Shape{n, k} : Shape{k, n}),
                      .c = ArrayView(c.data(), result, {m, n}),
                      .transpose_a = ta,
                      .transpose_b = tb};
  // The raw call gets b as rows in every case: a transposed b is no faster.
  const MatmulShape raw{
      .m = m, .n = n, .k = k, .operand = DTypeOf<T>(), .result = result, .transpose_a = ta};
  Compare(
      state, 2.0 * static_cast<double>(m * n * k), threads, [&] { Gemm(args, stream); },
      [&] { OneThreadMatmul(raw, a.data(), b.data(), nullptr, c.data()); });
}

void StepShapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"m", "n", "k", "flags", "threads"})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
  for (const int64_t threads : {1, 2}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{256, 768},
                                  {256, 256},
                                  {256, 1024},
                                  {1024, 256},
                                  {256, 8192}}) {
      benchmark->Args({2048, out, in, 0, threads})
          ->Args({2048, in, out, 2, threads})
          ->Args({in, out, 2048, 1, threads});
    }
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{64, 64}, {64, 192}}) {
      benchmark->Args({25600, out, in, 0, threads})
          ->Args({25600, in, out, 2, threads})
          ->Args({in, out, 25600, 1, threads});
    }
  }
}
BENCHMARK_TEMPLATE(BM_GemmToRaw, float)->Apply(StepShapes);
BENCHMARK_TEMPLATE(BM_GemmToRaw, BFloat16)->Apply(StepShapes);

// A head's loss and gradients, compared with its three products alone.
template <class T>
void BM_LinearCrossEntropyToRaw(benchmark::State& state) {
  const int64_t rows = 2048, dim = 256, classes = 8192;
  const bool table = state.range(0) != 0;
  const int threads = static_cast<int>(state.range(1));
  ThreadPool pool(threads);
  Stream stream(&pool);
  const std::vector<T> hidden = Operand<T>(rows * dim), weight = Operand<T>(dim * classes),
                       gradient = Operand<T>(rows * classes);
  std::vector<int64_t> target(rows);
  for (int64_t r = 0; r < rows; ++r) target[r] = r * 7919 % classes;
  std::vector<float> loss(rows), grad_hidden(rows * dim), grad_weight(dim * classes),
      logits(rows * classes);
  const Shape shape = table ? Shape{classes, dim} : Shape{dim, classes};
  const LinearCrossEntropyArgs args{
      .hidden = DenseView(hidden.data(), {rows, dim}),
      .weight = DenseView(weight.data(), shape),
      .weight_is_table = table,
      .target = DenseView(target.data(), {rows}),
      .loss = DenseView(loss.data(), {rows}),
      .grad_hidden = ArrayView(grad_hidden.data(), DTypeOf<T>(), {rows, dim}),
      .grad_weight = DenseView(grad_weight.data(), shape)};
  MatmulShape forward{
      .m = rows, .n = classes, .k = dim, .operand = DTypeOf<T>(), .result = DTypeOf<T>()};
  MatmulShape to_hidden{
      .m = rows, .n = dim, .k = classes, .operand = DTypeOf<T>(), .result = DTypeOf<T>()};
  MatmulShape to_weight{
      .m = dim, .n = classes, .k = rows, .operand = DTypeOf<T>(), .transpose_a = true};
  const auto raw = [&] {
    OneThreadMatmul(forward, hidden.data(), weight.data(), nullptr, logits.data());
    OneThreadMatmul(to_hidden, gradient.data(), weight.data(), nullptr, grad_hidden.data());
    OneThreadMatmul(to_weight, hidden.data(), gradient.data(), nullptr, grad_weight.data());
  };
  Compare(
      state, 6.0 * static_cast<double>(rows * dim * classes), threads,
      [&] { LinearCrossEntropy(args, stream); }, raw);
}
BENCHMARK_TEMPLATE(BM_LinearCrossEntropyToRaw, float)
    ->ArgNames({"table", "threads"})
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(BM_LinearCrossEntropyToRaw, BFloat16)
    ->ArgNames({"table", "threads"})
    ->ArgsProduct({{0, 1}, {1, 2}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tandem::kernels
