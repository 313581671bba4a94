#include "trainer/cli/bench_ceilings.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/clock.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cpu/fma_peak.h"
#include "kernels/cpu/onednn_matmul.h"

namespace tandem::cli {

namespace {

constexpr int64_t kSize = 512;              // of the matrices
constexpr size_t kCopyBytes = 32u << 20;    // a thread; well beyond its own caches
constexpr int kRepeats = 5;

// Work a second of `work` on every thread at once; the median of some repeats.
double Rate(ThreadPool& pool, double work_per_call, const std::function<void(int64_t thread)>& call) {
  const auto all = [&] { pool.ParallelFor(pool.num_threads(), call); };
  all();
  std::vector<double> rates;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const Stopwatch watch;
    all();
    rates.push_back(work_per_call * pool.num_threads() / watch.Seconds());
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRepeats / 2];
}

}  // namespace

Ceilings MeasureCeilings(int threads) {
  ThreadPool pool(threads);
  Ceilings ceilings;
  const size_t elements = kSize * kSize, count = static_cast<size_t>(threads);
  // Ones in whatever order are the same matrix, so that no operand has to be packed.
  std::vector<std::vector<float>> f32(count, std::vector<float>(3 * elements, 1.0f));
  std::vector<std::vector<BFloat16>> bf16(count, std::vector<BFloat16>(2 * elements, ToBFloat16(1.0f)));
  constexpr int kCalls = 8;
  const double flops = kCalls * 2.0 * kSize * kSize * kSize;
  const auto matmul = [&](DType operand, int64_t thread) {
    const kernels::MatmulShape shape{.m = kSize, .n = kSize, .k = kSize, .operand = operand,
                                     .panels = kernels::MatmulTakesPanels(operand)};
    float* floats = f32[static_cast<size_t>(thread)].data();
    const BFloat16* halves = bf16[static_cast<size_t>(thread)].data();
    const bool is_f32 = operand == DType::F32;
    const void *a = is_f32 ? static_cast<const void*>(floats) : halves;
    const void *b = is_f32 ? static_cast<const void*>(floats + elements) : halves + elements;
    for (int i = 0; i < kCalls; ++i) kernels::OneThreadMatmul(shape, a, b, nullptr, floats + 2 * elements);
  };
  ceilings.f32_matmul = Rate(pool, flops, [&](int64_t thread) { matmul(DType::F32, thread); });
  ceilings.bf16_matmul = ceilings.f32_matmul;  // where bf16 has no product, gemm's is f32's
  if (kernels::MatmulTakesPanels(DType::BF16)) {
    ceilings.bf16_matmul = Rate(pool, flops, [&](int64_t thread) { matmul(DType::BF16, thread); });
  }
  ceilings.f32_fma = Rate(pool, kernels::kFmaPeakFlops, [&](int64_t) { kernels::RunFmaPeak(); });
  std::vector<std::vector<char>> memory(count, std::vector<char>(2 * kCopyBytes, 1));
  ceilings.copy_bytes = Rate(pool, 2.0 * kCopyBytes, [&](int64_t t) {
    char* from = memory[static_cast<size_t>(t)].data();
    std::memcpy(from + kCopyBytes, from, kCopyBytes);
  });
  return ceilings;
}

}  // namespace tandem::cli
