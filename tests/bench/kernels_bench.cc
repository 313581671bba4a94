// Measures the CPU kernels at the sizes of a small recommendation Transformer: about 10,000 tokens,
// width 64.
// Gemm prints flops per second; the other kernels print the time of a call. Argument `threads` is
// the size of the pool.
#include <algorithm>
#include <atomic>
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/vector/fma_peak.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/loss.h"
#include "kernels/memory/large_memory.h"
#include "kernels/memory/storage.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kTokens = 10003, kWidth = 64;

// Aligned like the arrays of a training step: on cache lines, large arrays in huge pages.
template <class T>
struct ArrayAllocator {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(AllocateArray(n * sizeof(T))); }
  void deallocate(T* x, size_t) { std::free(x); }
  bool operator==(const ArrayAllocator&) const { return true; }
};
template <class T>
using Array = std::vector<T, ArrayAllocator<T>>;

Array<float> Values(int64_t n) {
  Array<float> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) x[i] = UnitFloat(RandomBits({1, 2}, 0, i)) - 0.5f;
  return x;
}

std::vector<int64_t> Range(int64_t n) {
  std::vector<int64_t> x(n);
  for (int64_t i = 0; i < n; ++i) x[i] = i;
  return x;
}

// Shapes that matmul_bench.cc does not compare with the raw call.
void BM_Gemm(benchmark::State& state) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool ta = state.range(3) & 1, tb = state.range(3) & 2;
  ThreadPool pool(static_cast<int>(state.range(4)));
  Stream stream(&pool);
  Array<float> a = Values(m * k), b = Values(k * n), c(m * n);
  const GemmArgs args{DenseView(a.data(), ta ? Shape{k, m} : Shape{m, k}),
                      DenseView(b.data(), tb ? Shape{n, k} : Shape{k, n}),
                      DenseView(c.data(), {m, n}), ta, tb};
  Gemm(args, stream);
  for (auto _ : state) Gemm(args, stream);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(m * n * k),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Gemm)
    ->ArgNames({"m", "n", "k", "flags", "threads"})
    ->ArgsProduct({{256}, {3648}, {64}, {0, 2}, {1, 2}})
    ->ArgsProduct({{3648}, {64}, {256}, {1}, {1, 2}})
    ->ArgsProduct({{256}, {64}, {3648}, {0}, {1, 2}})
    ->ArgsProduct({{16}, {3648}, {64}, {0, 2}, {1}})
    ->ArgsProduct({{1, 17}, {17}, {17}, {0, 3}, {1}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// The processor's present rate of fused multiply-adds on this thread, as the reference for the
// other GFLOP/s.
void BM_FmaPeak(benchmark::State& state) {
  for (auto _ : state) RunFmaPeak();
  state.counters["GFLOP/s"] =
      benchmark::Counter(1e-9 * kFmaPeakFlops, benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_FmaPeak);

template <class S>
Array<S> ValuesAs(int64_t n) {
  const Array<float> x = Values(n);
  Array<S> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = Store<S>(x[i]);
  return y;
}

// Causal self-attention over sequences of one length, with queries, keys and values in one array.
// `dropout` is in percent.
// Flops count the visible pairs of a query and a key: two products forward, five backward.
template <class S>
void BM_Attention(benchmark::State& state) {
  const bool backward = state.range(0) != 0;
  const int64_t num_sequences = state.range(1), length = state.range(2), heads = state.range(3),
                depth = state.range(4);
  const int64_t num_tokens = num_sequences * length, width = heads * depth;
  ThreadPool pool(static_cast<int>(state.range(6)));
  Stream stream(&pool);
  Array<S> qkv = ValuesAs<S>(num_tokens * 3 * width),
           output(static_cast<size_t>(num_tokens * width));
  Array<S> grad_output = ValuesAs<S>(num_tokens * width), grad(qkv.size());
  Array<float> log_sum(static_cast<size_t>(num_tokens * heads));
  std::vector<int64_t> offsets = Range(num_sequences + 1), rows = Range(num_tokens);
  for (int64_t& offset : offsets) offset *= length;
  const auto part = [&](Array<S>& x, int64_t i) {
    return ArrayView(x.data() + i * width, DTypeOf<S>(), {num_tokens, heads, depth},
                     {3 * width, depth, 1});
  };
  const auto dense = [&](Array<S>& x) { return DenseView(x.data(), {num_tokens, heads, depth}); };
  AttentionArgs common{part(qkv, 0),
                       part(qkv, 1),
                       part(qkv, 2),
                       DenseView(offsets.data(), {num_sequences + 1}),
                       DenseView(rows.data(), {num_tokens}),
                       length,
                       true,
                       0.17,
                       state.range(5) / 100.0f,
                       {1, 2},
                       3};
  const AttentionForwardArgs forward{common, dense(output),
                                     DenseView(log_sum.data(), {num_tokens, heads})};
  const AttentionBackwardArgs backward_args{common,
                                            dense(output),
                                            DenseView(log_sum.data(), {num_tokens, heads}),
                                            dense(grad_output),
                                            part(grad, 0),
                                            part(grad, 1),
                                            part(grad, 2)};
  AttentionForward(forward, stream);
  for (auto _ : state) {
    if (backward)
      AttentionBackward(backward_args, stream);
    else
      AttentionForward(forward, stream);
  }
  const double pairs = static_cast<double>(num_sequences * heads * length * (length + 1) / 2);
  state.counters["GFLOP/s"] =
      benchmark::Counter((backward ? 5 : 2) * 2e-9 * pairs * static_cast<double>(depth),
                         benchmark::Counter::kIsIterationInvariantRate);
}
void AttentionCases(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"backward", "sequences", "length", "heads", "depth", "dropout", "threads"})
      ->ArgsProduct({{0, 1}, {8}, {256}, {4}, {64}, {0}, {1}})  // a small language model
      ->ArgsProduct(
          {{0, 1}, {128}, {200}, {1}, {64}, {20}, {1}})  // recommenders, long and short histories
      ->ArgsProduct({{0, 1}, {200}, {50}, {2}, {32}, {50}, {1}})
      ->ArgsProduct({{0, 1}, {1}, {200}, {1}, {64}, {20}, {1}})
      ->ArgsProduct({{0, 1}, {1}, {256}, {1}, {64}, {0}, {1}})
      ->ArgsProduct({{0, 1}, {2}, {2048}, {2}, {64}, {0}, {1}})
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK(BM_Attention<float>)->Apply(AttentionCases);
BENCHMARK(BM_Attention<BFloat16>)->Apply(AttentionCases);

void BM_LayerNorm(benchmark::State& state) {
  ThreadPool pool(1);
  Stream stream(&pool);
  Array<float> x = Values(kTokens * kWidth), y(x.size()), grad = Values(x.size());
  Array<float> gamma = Values(kWidth), beta = Values(kWidth);
  Array<float> mean(kTokens), inverse(kTokens), grad_gamma(kWidth), grad_beta(kWidth);
  const auto wide = [&](Array<float>& v) { return DenseView(v.data(), {kTokens, kWidth}); };
  const auto flat = [&](Array<float>& v) {
    return DenseView(v.data(), {static_cast<int64_t>(v.size())});
  };
  const LayerNormForwardArgs forward{wide(x), flat(gamma), flat(beta),
                                     wide(y), flat(mean),  flat(inverse)};
  const LayerNormBackwardArgs backward{wide(grad),    wide(x), flat(gamma),      flat(mean),
                                       flat(inverse), wide(y), flat(grad_gamma), flat(grad_beta)};
  LayerNormForward(forward, stream);
  for (auto _ : state) {
    if (state.range(0) == 0)
      LayerNormForward(forward, stream);
    else
      LayerNormBackward(backward, stream);
  }
}
BENCHMARK(BM_LayerNorm)->ArgName("backward")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

// Rows of 64, as a parameter server updates them.
void BM_AdamRows(benchmark::State& state) {
  const int64_t total = 640000, run = 64;
  Array<float> w = Values(total), m(total), v(total), g = Values(total);
  AdamArgs args;
  args.learning_rate = 1e-3;
  for (auto _ : state) {
    for (int64_t i = 0; i < total; i += run)
      AdamUpdate(w.data() + i, m.data() + i, v.data() + i, g.data() + i, run, args);
  }
}
BENCHMARK(BM_AdamRows)->Unit(benchmark::kMicrosecond);

// The passes around the matmuls, at the sizes of a GPT step (2048 tokens, widths 256 and 1024, 7.4
// million parameters) and of a SASRec step (25,600 tokens, width 64, a table of 3,417 rows).
// GB/s counts the bytes that must be read and written at least once. BM_Copy and BM_Triad show the
// memory's rate at these sizes.
void Bytes(benchmark::State& state, double bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * bytes, benchmark::Counter::kIsIterationInvariantRate);
}

void BM_Copy(benchmark::State& state) {
  const int64_t n = state.range(0);
  Array<float> x = Values(n), y(n);
  for (auto _ : state) {
    std::copy(x.begin(), x.end(), y.begin());
    benchmark::DoNotOptimize(y.data());
    benchmark::ClobberMemory();
  }
  Bytes(state, 8.0 * n);
}
BENCHMARK(BM_Copy)
    ->ArgName("n")
    ->Arg(2048 * 256)
    ->Arg(25600 * 64)
    ->Arg(2048 * 1024)
    ->Arg(7400000)
    ->Unit(benchmark::kMicrosecond);

// Reads three arrays and writes one of them: an optimizer's pattern without its arithmetic.
void BM_Triad(benchmark::State& state) {
  const int64_t n = state.range(0);
  Array<float> x = Values(n), y = Values(n), z = Values(n);
  float *a = x.data(), *b = y.data(), *c = z.data();
  for (auto _ : state) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) a[i] = b[i] + 0.5f * c[i];
    benchmark::ClobberMemory();
  }
  Bytes(state, 12.0 * n);
}
BENCHMARK(BM_Triad)
    ->ArgName("n")
    ->Arg(2048 * 256)
    ->Arg(25600 * 64)
    ->Arg(2048 * 1024)
    ->Arg(7400000)
    ->Unit(benchmark::kMicrosecond);

void BM_DenseAdam(benchmark::State& state) {
  const int64_t n = 7400000;
  Array<float> w = Values(n), m(n), v(n), g = Values(n);
  std::vector<BFloat16> shadow(state.range(0) == 0 ? 0 : n);
  AdamArgs args;
  args.learning_rate = 1e-3;
  for (auto _ : state) {
    AdamUpdate(w.data(), m.data(), v.data(), g.data(), n, args,
               shadow.empty() ? nullptr : shadow.data());
  }
  Bytes(state, (shadow.empty() ? 28.0 : 30.0) * n);
}
BENCHMARK(BM_DenseAdam)->ArgName("shadow")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void BM_SumOfSquares(benchmark::State& state) {
  ThreadPool pool(1);
  Stream stream(&pool);
  Array<float> x = Values(state.range(0));
  for (auto _ : state)
    benchmark::DoNotOptimize(SumOfSquares(DenseView(x.data(), {state.range(0)}), stream));
  Bytes(state, 4.0 * state.range(0));
}
BENCHMARK(BM_SumOfSquares)->Arg(7400000)->Unit(benchmark::kMicrosecond);

// An array of F32 or BF16, with a view of rows.
struct Floats {
  Array<float> f32;
  std::vector<BFloat16> bf16;
  int64_t rows, columns;

  Floats(int64_t n, int64_t columns, bool half, float range = 1)
      : rows(n / columns), columns(columns) {
    f32 = Values(n);
    for (float& x : f32) x *= range;
    if (!half) return;
    for (float x : f32) bf16.push_back(ToBFloat16(x));
    f32.clear();
  }
  operator ArrayView() {
    return bf16.empty() ? DenseView(f32.data(), {rows, columns})
                        : DenseView(bf16.data(), {rows, columns});
  }
};

enum Pass {
  ADD,
  ADD_MIXED,
  ADD_SCALED,
  SCALE,
  ADD_BIAS,
  COLUMN_SUM,
  ROW_DOT,
  SCALE_ROWS,
  DROPOUT,
  DROPOUT_BACKWARD
};

void BM_Elementwise(benchmark::State& state) {
  const bool half = state.range(1) == 16;
  const int64_t n = state.range(2), columns = state.range(3), rows = n / columns;
  ThreadPool pool(1);
  Stream stream(&pool);
  Floats x(n, columns, half), y(n, columns, half), z(n, columns, half), wide(n, columns, false);
  Array<float> bias = Values(columns), scale = Values(rows);
  std::vector<int64_t> index = Range(rows);
  std::vector<uint64_t> mask(rows * DropoutMaskWords(columns));
  const ArrayView row_bias = DenseView(bias.data(), {columns}),
                  row_scale = DenseView(scale.data(), {rows});
  const ArrayView kept = DenseView(mask.data(), {rows, DropoutMaskWords(columns)});
  const double size = half ? 2 : 4;
  double each = 0;  // bytes per element
  for (auto _ : state) {
    switch (static_cast<Pass>(state.range(0))) {
      case ADD:
        Add(z, x, y, stream), each = 3 * size;
        break;
      case ADD_MIXED:
        Add(wide, wide, y, stream), each = 8 + size;
        break;
      case ADD_SCALED:
        AddScaled(z, x, 0.5, stream), each = 3 * size;
        break;
      case SCALE:
        Scale(z, x, 0.5, stream), each = 2 * size;
        break;
      case ADD_BIAS:
        AddBias(z, x, row_bias, stream), each = 2 * size;
        break;
      case COLUMN_SUM:
        ColumnSum(row_bias, x, false, stream), each = size;
        break;
      case ROW_DOT:
        RowDot(row_scale, x, wide, stream), each = 4 + size;
        break;
      case SCALE_ROWS:
        ScaleRows(z, wide, row_scale, false, stream), each = 4 + size;
        break;
      case DROPOUT:
        Dropout({x, z, DenseView(index.data(), {rows}), 0.2f, {1, 2}, 3, kept}, stream),
            each = 2 * size;
        break;
      case DROPOUT_BACKWARD:
        DropoutBackward({x, z, kept, 0.2f}, stream), each = 2 * size;
        break;
    }
  }
  Bytes(state, each * n);
}
BENCHMARK(BM_Elementwise)
    ->ArgNames({"pass", "bits", "n", "columns"})
    ->ArgsProduct(
        {benchmark::CreateDenseRange(ADD, DROPOUT_BACKWARD, 1), {32, 16}, {25600 * 64}, {64}})
    ->ArgsProduct(
        {benchmark::CreateDenseRange(ADD, DROPOUT_BACKWARD, 1), {32, 16}, {2048 * 256}, {256}})
    ->ArgsProduct({{ADD_BIAS, COLUMN_SUM}, {32, 16}, {2048 * 1024}, {1024}})
    ->Unit(benchmark::kMicrosecond);

void BM_WideActivation(benchmark::State& state) {
  const int64_t n = 2048 * 1024;
  const bool half = state.range(2) == 16;
  ThreadPool pool(1);
  Stream stream(&pool);
  Floats x(n, 1024, half, 6), y(n, 1024, half), grad(n, 1024, half);
  const Activation activation = static_cast<Activation>(state.range(0));
  for (auto _ : state) {
    if (state.range(1) == 0)
      ActivationForward(y, x, activation, stream);
    else
      ActivationBackward(y, grad, x, activation, stream);
  }
  Bytes(state, (state.range(1) == 0 ? 2.0 : 3.0) * (half ? 2 : 4) * n);
}
BENCHMARK(BM_WideActivation)
    ->ArgNames({"kind", "backward", "bits"})
    ->ArgsProduct({{0, 1, 2, 3}, {0, 1}, {32, 16}})
    ->Unit(benchmark::kMicrosecond);

void BM_Rows(benchmark::State& state) {
  const int64_t count = state.range(1), num_rows = state.range(2), columns = state.range(3);
  ThreadPool pool(1);
  Stream stream(&pool);
  Array<float> rows = Values(count * columns), table = Values(num_rows * columns);
  std::vector<int64_t> index(count);
  for (int64_t i = 0; i < count; ++i)
    index[i] = static_cast<int64_t>(RandomBelow({1, 2}, 0, i, num_rows));
  const ArrayView rv = DenseView(rows.data(), {count, columns}),
                  tv = DenseView(table.data(), {num_rows, columns});
  const ArrayView iv = DenseView(index.data(), {count});
  for (auto _ : state) {
    if (state.range(0) == 0)
      GatherRows(rv, tv, iv, stream);
    else
      ScatterAddRows(tv, rv, iv, false, stream);
  }
  Bytes(state, 8.0 * count + 4.0 * columns * (state.range(0) == 0 ? 2 * count : count + num_rows));
}
BENCHMARK(BM_Rows)
    ->ArgNames({"scatter", "count", "table", "columns"})
    ->ArgsProduct({{0, 1}, {25600}, {3417}, {64}})
    ->ArgsProduct({{0, 1}, {2048}, {4096, 50257}, {256}})
    ->Unit(benchmark::kMicrosecond);

void BM_BinaryCrossEntropy(benchmark::State& state) {
  const int64_t n = 25600;
  ThreadPool pool(1);
  Stream stream(&pool);
  Array<float> x = Values(n), label(n, 1), loss(n), grad(n);
  const auto flat = [&](Array<float>& v) { return DenseView(v.data(), {n}); };
  for (auto _ : state) BinaryCrossEntropy({flat(x), flat(label), flat(loss), flat(grad)}, stream);
  Bytes(state, 16.0 * n);
}
BENCHMARK(BM_BinaryCrossEntropy)->Unit(benchmark::kMicrosecond);

void BM_WideCrossEntropy(benchmark::State& state) {
  const int64_t rows = 2048, columns = 4096;
  const bool half = state.range(0) == 16;
  ThreadPool pool(1);
  Stream stream(&pool);
  Floats x(rows * columns, columns, half), grad(rows * columns, columns, half);
  Array<float> loss(rows);
  std::vector<int64_t> target = Range(rows);
  for (auto _ : state)
    CrossEntropy({x, DenseView(target.data(), {rows}), DenseView(loss.data(), {rows}), grad},
                 stream);
  Bytes(state, 2.0 * (half ? 2 : 4) * rows * columns);
}
BENCHMARK(BM_WideCrossEntropy)->ArgName("bits")->Arg(32)->Arg(16)->Unit(benchmark::kMicrosecond);

// The cost of a loop of `tasks` empty tasks, which a pool of two adds to every kernel.
void BM_ParallelFor(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  std::atomic<int64_t> done{0};
  for (auto _ : state)
    pool.ParallelFor(state.range(1),
                     [&](int64_t) { done.fetch_add(1, std::memory_order_relaxed); });
}
BENCHMARK(BM_ParallelFor)
    ->ArgNames({"threads", "tasks"})
    ->ArgsProduct({{1, 2}, {2, 16}})
    ->UseRealTime();

}  // namespace
}  // namespace tandem::kernels

BENCHMARK_MAIN();
