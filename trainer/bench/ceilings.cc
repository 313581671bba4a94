#include "trainer/bench/ceilings.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/clock.h"
#include "kernels/base/dtype.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cast.h"
#include "kernels/cpu/matmul/onednn_matmul.h"
#include "kernels/cpu/matmul/split_matmul.h"
#include "kernels/cpu/vector/fma_peak.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/event.h"
#include "kernels/memory/stream.h"
#include "trainer/bench/figures.h"

namespace tandem::bench {

namespace {

constexpr int64_t kSize = 512;            // extent of the matrices
constexpr size_t kCopyBytes = 32u << 20;  // per thread; well beyond its own caches
constexpr int kRepeats = 5;

// The work per second of `call` on every thread at once: the median of several repeats.
double Rate(ThreadPool& pool, double work_per_call,
            const std::function<void(int64_t thread)>& call) {
  const auto all = [&] { pool.ParallelFor(pool.num_threads(), call); };
  all();
  std::vector<double> rates;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const Stopwatch watch;
    all();
    rates.push_back(work_per_call * pool.num_threads() / watch.Seconds());
  }
  return Median(rates);
}

// Numbers of all kinds, because processors and devices multiply constants with less power and so
// run faster.
std::vector<float> Numbers(int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  uint32_t bits = 1;
  for (float& number : numbers)
    number = static_cast<float>((bits = bits * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
  return numbers;
}

using WorkOfThread = std::function<void(int64_t thread)>;

// Several products of kSize matrices, each thread in its own memory: multiply(operands, c).
constexpr int kProducts = 8;
template <class T, class Multiply>
WorkOfThread Products(int threads, const std::vector<T>& operands, const Multiply& multiply) {
  const size_t operand_bytes = operands.size() * sizeof(T), c_bytes = kSize * kSize * sizeof(float);
  std::vector<std::shared_ptr<Buffer>> memory;
  for (int t = 0; t < threads; ++t) {
    memory.push_back(Buffer::Allocate(operand_bytes + c_bytes));
    std::memcpy(memory.back()->data(), static_cast<const void*>(operands.data()), operand_bytes);
  }
  return [=](int64_t t) {
    char* of_thread = static_cast<char*>(memory[static_cast<size_t>(t)]->data());
    for (int i = 0; i < kProducts; ++i)
      multiply(reinterpret_cast<const T*>(of_thread),
               reinterpret_cast<float*>(of_thread + operand_bytes));
  };
}

// Products by oneDNN alone, with a dense c of f32. `operands` are two matrices.
template <class T>
WorkOfThread OneDnnProducts(int threads, const std::vector<T>& operands) {
  const kernels::MatmulShape shape{.m = kSize, .n = kSize, .k = kSize, .operand = DTypeOf<T>()};
  return Products(threads, operands, [shape](const T* a, float* c) {
    kernels::OneThreadMatmul(shape, a, a + kSize * kSize, /*bias=*/nullptr, c);
  });
}

// Products in the pieces of split_matmul.h. A real step must also make the pieces.
WorkOfThread SplitProducts(int threads, const std::vector<float>& operands) {
  const int64_t size = kernels::SplitSize(kSize, kSize);
  const kernels::StoredMatrix<float> a{operands.data(), kSize, kSize, kSize, /*transposed=*/true};
  const kernels::StoredMatrix<float> b{operands.data() + kSize * kSize, kSize, kSize, kSize,
                                       /*transposed=*/true};
  std::vector<BFloat16> pieces(static_cast<size_t>(2 * size));
  kernels::SplitOperand(kernels::SplitSide::A, a, 0, kSize, kSize, pieces.data());
  kernels::SplitOperand(kernels::SplitSide::B, b, 0, kSize, kSize, pieces.data() + size);
  return Products(threads, pieces, [size](const BFloat16* a_pieces, float* c) {
    kernels::SplitProduct(kSize, kSize, kSize, a_pieces, a_pieces + size,
                          kernels::SplitSize(kernels::kSplitUnit, kSize), {.c = c, .c_row = kSize});
  });
}

double MatmulRate(ThreadPool& pool, const WorkOfThread& products) {
  return Rate(pool, kProducts * 2.0 * kSize * kSize * kSize, products);
}

// Multiply-adds in registers, straight after `before`. Processors lower their clock for 512-bit
// vectors whose operands come from the caches, by 3 to 12 % on a Xeon with AMX. They raise it again
// within a millisecond.
double FmaRate(ThreadPool& pool, const WorkOfThread& before) {
  constexpr int kBursts = 32;
  std::vector<double> seconds(static_cast<size_t>(pool.num_threads())), rates;
  for (int burst = 0; burst < kBursts; ++burst) {
    pool.ParallelFor(pool.num_threads(), [&](int64_t t) {
      before(t);
      const Stopwatch watch;
      kernels::RunFmaPeak();
      seconds[static_cast<size_t>(t)] = watch.Seconds();
    });
    double rate = 0;
    for (const double s : seconds) rate += kernels::kFmaPeakFlops / s;
    rates.push_back(rate);
  }
  return Median(rates);
}

}  // namespace

Ceilings MeasureCeilings(int threads, DType operands) {
  ThreadPool pool(threads);
  Ceilings ceilings;
  const size_t count = static_cast<size_t>(threads);
  const std::vector<float> numbers = Numbers(2 * kSize * kSize);
  std::vector<BFloat16> rounded;
  for (float number : numbers) rounded.push_back(ToBFloat16(number));
  const WorkOfThread in_f32 = OneDnnProducts(threads, numbers),
                     in_bf16 = OneDnnProducts(threads, rounded);
  const bool has_bf16 = kernels::MatmulTakesPanels(DType::BF16);
  ceilings.f32_matmul = MatmulRate(pool, in_f32);
  ceilings.bf16_matmul = has_bf16 ? MatmulRate(pool, in_bf16) : ceilings.f32_matmul;
  ceilings.f32_split = kernels::UsesSplitProducts(kSize, kSize)
                           ? MatmulRate(pool, SplitProducts(threads, numbers))
                           : 0;
  ceilings.f32_fma = FmaRate(pool, operands == DType::BF16 && has_bf16 ? in_bf16 : in_f32);
  ceilings.f32_fma_alone = FmaRate(pool, [](int64_t) {});
  std::vector<std::shared_ptr<Buffer>> memory;  // the pages of the arrays
  for (size_t t = 0; t < count; ++t) memory.push_back(Buffer::Allocate(2 * kCopyBytes));
  for (const auto& buffer : memory) std::memset(buffer->data(), 1, buffer->num_bytes());
  ceilings.copy_bytes = Rate(pool, 2.0 * kCopyBytes, [&](int64_t t) {
    char* from = static_cast<char*>(memory[static_cast<size_t>(t)]->data());
    std::memcpy(from + kCopyBytes, from, kCopyBytes);
  });
  return ceilings;
}

namespace {

// The work per second of `submit`, on the device's clock: the median of several repeats.
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
  return Median(rates);
}

absl::StatusOr<double> DeviceMatmulRate(Stream& stream, DType dtype, int64_t size) {
  const size_t num_bytes = static_cast<size_t>(size * size) * SizeOf(dtype);
  std::shared_ptr<Buffer> memory[3];
  ArrayView views[3];
  for (int i = 0; i < 3; ++i) {
    memory[i] = Buffer::Allocate(num_bytes, stream.device());
    views[i] = ArrayView(memory[i]->data(), dtype, {size, size});
  }
  const std::vector<float> numbers = Numbers(size * size);
  const auto f32 = Buffer::Allocate(numbers.size() * sizeof(float), stream.device());
  stream.CopyToDevice(f32->data(), numbers.data(), f32->num_bytes());
  for (int i = 0; i < 2; ++i)
    kernels::Cast(views[i], ArrayView(f32->data(), DType::F32, {size, size}), stream);
  const auto side = static_cast<double>(size);
  return DeviceRate(stream, 2 * side * side * side,
                    [&] { kernels::Gemm({.a = views[0], .b = views[1], .c = views[2]}, stream); });
}

}  // namespace

absl::StatusOr<Ceilings> MeasureDeviceCeilings(Device device) {
  constexpr int64_t kCopyElements = 128 << 20;  // far beyond every cache
  ThreadPool pool(1);
  Stream stream(&pool, device);
  Ceilings ceilings;
  ASSIGN_OR_RETURN(ceilings.bf16_matmul, DeviceMatmulRate(stream, DType::BF16, 8192));
  ASSIGN_OR_RETURN(ceilings.f32_matmul, DeviceMatmulRate(stream, DType::F32, 4096));
  // PeakFlops is 0 for an unknown device.
  ceilings.f32_fma = std::max(PeakFlops(device, DType::F32), ceilings.f32_matmul);
  const auto from = Buffer::Allocate(kCopyElements * sizeof(float), device),
             to = Buffer::Allocate(kCopyElements * sizeof(float), device);
  const ArrayView x(from->data(), DType::F32, {kCopyElements}),
      y(to->data(), DType::F32, {kCopyElements});
  kernels::Fill(x, 0, stream);
  ASSIGN_OR_RETURN(ceilings.copy_bytes, DeviceRate(stream, 2.0 * sizeof(float) * kCopyElements,
                                                   [&] { kernels::Copy(y, x, stream); }));
  return ceilings;
}

Ceilings Mean(const Ceilings& a, const Ceilings& b) {
  return {(a.f32_matmul + b.f32_matmul) / 2,       (a.bf16_matmul + b.bf16_matmul) / 2,
          (a.f32_split + b.f32_split) / 2,         (a.f32_fma + b.f32_fma) / 2,
          (a.f32_fma_alone + b.f32_fma_alone) / 2, (a.copy_bytes + b.copy_bytes) / 2};
}

}  // namespace tandem::bench
