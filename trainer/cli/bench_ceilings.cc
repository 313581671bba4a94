#include "trainer/cli/bench_ceilings.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/buffer.h"
#include "kernels/base/clock.h"
#include "kernels/base/dtype.h"
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

// Of oneDNN alone on every thread, with a dense c of f32.
template <class T>
double MatmulRate(ThreadPool& pool, T one) {
  constexpr size_t kElements = kSize * kSize;
  constexpr int kCalls = 8;
  const size_t count = static_cast<size_t>(pool.num_threads());
  std::vector<std::vector<T>> operands(count, std::vector<T>(2 * kElements, one));
  std::vector<std::vector<float>> results(count, std::vector<float>(kElements));
  const kernels::MatmulShape shape{.m = kSize, .n = kSize, .k = kSize, .operand = DTypeOf<T>()};
  return Rate(pool, kCalls * 2.0 * kSize * kSize * kSize, [&](int64_t t) {
    const T* a = operands[static_cast<size_t>(t)].data();
    float* c = results[static_cast<size_t>(t)].data();
    for (int i = 0; i < kCalls; ++i) kernels::OneThreadMatmul(shape, a, a + kElements, /*bias=*/nullptr, c);
  });
}

}  // namespace

Ceilings MeasureCeilings(int threads) {
  ThreadPool pool(threads);
  Ceilings ceilings;
  const size_t count = static_cast<size_t>(threads);
  ceilings.f32_matmul = MatmulRate<float>(pool, 1.0f);
  ceilings.bf16_matmul = kernels::MatmulTakesPanels(DType::BF16) ? MatmulRate(pool, ToBFloat16(1.0f)) : ceilings.f32_matmul;
  ceilings.f32_fma = Rate(pool, kernels::kFmaPeakFlops, [&](int64_t) { kernels::RunFmaPeak(); });
  std::vector<std::shared_ptr<Buffer>> memory;  // the pages that arrays lie in
  for (size_t t = 0; t < count; ++t) memory.push_back(Buffer::Allocate(2 * kCopyBytes));
  for (const auto& buffer : memory) std::memset(buffer->data(), 1, buffer->num_bytes());
  ceilings.copy_bytes = Rate(pool, 2.0 * kCopyBytes, [&](int64_t t) {
    char* from = static_cast<char*>(memory[static_cast<size_t>(t)]->data());
    std::memcpy(from + kCopyBytes, from, kCopyBytes);
  });
  return ceilings;
}

Ceilings Mean(const Ceilings& a, const Ceilings& b) {
  return {(a.f32_matmul + b.f32_matmul) / 2, (a.bf16_matmul + b.bf16_matmul) / 2, (a.f32_fma + b.f32_fma) / 2,
          (a.copy_bytes + b.copy_bytes) / 2};
}

}  // namespace tandem::cli
