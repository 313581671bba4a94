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
#include "kernels/base/event.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/stream.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cast.h"
#include "kernels/cpu/fma_peak.h"
#include "kernels/cpu/onednn_matmul.h"
#include "kernels/cpu/split_matmul.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"

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

// In the pieces of split_matmul.h, which a step must make besides.
double SplitMatmulRate(ThreadPool& pool) {
  constexpr int kCalls = 8;
  const size_t count = static_cast<size_t>(pool.num_threads());
  const std::vector<float> ones(kSize * kSize, 1.0f);
  std::vector<std::shared_ptr<Buffer>> operands, results;
  for (size_t t = 0; t < count; ++t) {
    operands.push_back(Buffer::Allocate(2 * sizeof(BFloat16) * kernels::SplitSize(kSize, kSize)));
    results.push_back(Buffer::Allocate(sizeof(float) * ones.size()));
    auto* a = static_cast<BFloat16*>(operands[t]->data());
    const kernels::StoredMatrix<float> x{ones.data(), kSize, kSize, kSize, /*transposed=*/true};
    kernels::SplitOperand(kernels::SplitSide::A, x, 0, kSize, kSize, a);
    kernels::SplitOperand(kernels::SplitSide::B, x, 0, kSize, kSize, a + kernels::SplitSize(kSize, kSize));
  }
  return Rate(pool, kCalls * 2.0 * kSize * kSize * kSize, [&](int64_t t) {
    const auto* a = static_cast<const BFloat16*>(operands[static_cast<size_t>(t)]->data());
    const kernels::SplitTarget target{.c = static_cast<float*>(results[static_cast<size_t>(t)]->data()), .c_row = kSize};
    for (int i = 0; i < kCalls; ++i) {
      kernels::SplitProduct(kSize, kSize, kSize, a, a + kernels::SplitSize(kSize, kSize), kernels::SplitSize(kernels::kSplitUnit, kSize), target);
    }
  });
}

}  // namespace

Ceilings MeasureCeilings(int threads) {
  ThreadPool pool(threads);
  Ceilings ceilings;
  const size_t count = static_cast<size_t>(threads);
  ceilings.f32_matmul = MatmulRate<float>(pool, 1.0f);
  ceilings.bf16_matmul = kernels::MatmulTakesPanels(DType::BF16) ? MatmulRate(pool, ToBFloat16(1.0f)) : ceilings.f32_matmul;
  ceilings.f32_split = kernels::UsesSplitProducts(kSize, kSize) ? SplitMatmulRate(pool) : 0;
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

namespace {

// Work a second of `submit`, on the device's clock; the median of some repeats.
template <class Submit>
absl::StatusOr<double> DeviceRate(Stream& stream, double work, const Submit& submit) {
  std::vector<double> rates;
  Event begin(stream.device(), Event::Kind::TIMED), end(stream.device(), Event::Kind::TIMED);
  for (int repeat = -1; repeat < kRepeats; ++repeat) {  // the first warms up
    RETURN_IF_ERROR(begin.Record(stream.queue()));
    submit();
    RETURN_IF_ERROR(end.Record(stream.queue()));
    RETURN_IF_ERROR(stream.Wait());
    ASSIGN_OR_RETURN(const double seconds, begin.SecondsUntil(end));
    if (repeat >= 0) rates.push_back(work / seconds);
  }
  std::sort(rates.begin(), rates.end());
  return rates[kRepeats / 2];
}

absl::StatusOr<double> DeviceMatmulRate(Stream& stream, DType dtype, int64_t size) {
  const size_t num_bytes = static_cast<size_t>(size * size) * SizeOf(dtype);
  std::shared_ptr<Buffer> memory[3];
  ArrayView views[3];
  for (int i = 0; i < 3; ++i) {
    memory[i] = Buffer::Allocate(num_bytes, stream.device());
    views[i] = ArrayView(memory[i]->data(), dtype, {size, size});
  }
  // Numbers of all kinds: a device multiplies constants with less power, and so faster.
  std::vector<float> numbers(static_cast<size_t>(size * size));
  uint32_t bits = 1;
  for (float& number : numbers) number = static_cast<float>((bits = bits * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
  const auto f32 = Buffer::Allocate(numbers.size() * sizeof(float), stream.device());
  stream.CopyToDevice(f32->data(), numbers.data(), f32->num_bytes());
  for (int i = 0; i < 2; ++i) kernels::Cast(views[i], ArrayView(f32->data(), DType::F32, {size, size}), stream);
  const auto side = static_cast<double>(size);
  return DeviceRate(stream, 2 * side * side * side, [&] { kernels::Gemm({.a = views[0], .b = views[1], .c = views[2]}, stream); });
}

}  // namespace

absl::StatusOr<Ceilings> MeasureDeviceCeilings(Device device) {
  constexpr int64_t kCopyElements = 128 << 20;  // far beyond every cache
  ThreadPool pool(1);
  Stream stream(&pool, device);
  Ceilings ceilings;
  ASSIGN_OR_RETURN(ceilings.bf16_matmul, DeviceMatmulRate(stream, DType::BF16, 8192));
  ASSIGN_OR_RETURN(ceilings.f32_matmul, DeviceMatmulRate(stream, DType::F32, 4096));
  ceilings.f32_fma = std::max(PeakFlops(device, DType::F32), ceilings.f32_matmul);  // the first is 0 for a device that is not known
  const auto from = Buffer::Allocate(kCopyElements * sizeof(float), device), to = Buffer::Allocate(kCopyElements * sizeof(float), device);
  const ArrayView x(from->data(), DType::F32, {kCopyElements}), y(to->data(), DType::F32, {kCopyElements});
  kernels::Fill(x, 0, stream);
  ASSIGN_OR_RETURN(ceilings.copy_bytes, DeviceRate(stream, 2.0 * sizeof(float) * kCopyElements, [&] { kernels::Copy(y, x, stream); }));
  return ceilings;
}

Ceilings Mean(const Ceilings& a, const Ceilings& b) {
  return {(a.f32_matmul + b.f32_matmul) / 2, (a.bf16_matmul + b.bf16_matmul) / 2, (a.f32_split + b.f32_split) / 2, (a.f32_fma + b.f32_fma) / 2,
          (a.copy_bytes + b.copy_bytes) / 2};
}

}  // namespace tandem::cli
