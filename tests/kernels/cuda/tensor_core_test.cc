#include "kernels/cuda/attention/tensor_core.cuh"

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "tests/kernels/cuda/device_arrays.h"

// Checks the fragment layouts that kernels rely on: the GPU's instructions on a GPU, the emulator's
// elsewhere.
namespace tandem::kernels::cuda {
namespace {

using TensorCoreTest = DeviceTest;

// c [16, 8] = a [16, 16] times b [16, 8], with operands in the registers that the manual names.
__global__ void MmaKernel(const BFloat16* a, const BFloat16* b, float* c) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const auto pair = [](BFloat16 first, BFloat16 second) {
    return first.bits | static_cast<uint32_t>(second.bits) << 16;
  };
  uint32_t left[4], right[2];
  for (int i = 0; i < 4; ++i) {
    const BFloat16* at = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    left[i] = pair(at[0], at[1]);
  }
  for (int i = 0; i < 2; ++i) {
    const BFloat16* at = b + (2 * t + 8 * i) * 8 + g;
    right[i] = pair(at[0], at[8]);
  }
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = c[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  MmaBf16(sums, left, right[0], right[1]);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST_F(TensorCoreTest, MmaAddsTheProductOfTwoMatrices) {
  const Array<double> a = RandomFor<BFloat16>({16, 16}, 1), b = RandomFor<BFloat16>({16, 8}, 2),
                      c = RandomFor<float>({16, 8}, 3);
  OnDevice<BFloat16> device_a(RoundedTo<BFloat16>(a), device()),
      device_b(RoundedTo<BFloat16>(b), device());
  OnDevice<float> device_c(RoundedTo<float>(c), device());
  Launch(device(), {"mma", device_c.view()}, Grid{1, 32}, MmaKernel, device_a.data(),
         device_b.data(), device_c.data());
  Array<double> wanted = c;
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      for (int64_t k = 0; k < 16; ++k) wanted[i * 8 + j] += a[i * 16 + k] * b[k * 8 + j];
    }
  }
  EXPECT_LT(RelativeError(device_c.Get(), wanted), 1e-6);
}

// Loads 32 rows of eight elements by copies and by the two loads. Output [copied, 2 loads,
// register, lane]: pairs of u16 in f32's bits.
__global__ void LoadKernel(const BFloat16* from, uint64_t* to) {
  BFloat16* shared = SharedMemory<BFloat16>();
  const int lane = static_cast<int>(threadIdx.x);
  CpAsync16(shared + 8 * lane, from + 8 * lane, true);
  CpAsyncCommit();
  CpAsyncWait<0>();
  __syncthreads();
  uint32_t x[4], y[4];
  LdMatrix(x, shared + 8 * lane);
  LdMatrixTransposed(y, shared + 8 * lane);
  for (int i = 0; i < 4; ++i) {
    to[32 * i + lane] = x[i];
    to[32 * (4 + i) + lane] = y[i];
  }
}

TEST_F(TensorCoreTest, MatricesAreLoadedByRowsAndByColumns) {
  Array<BFloat16> from({32, 8});
  for (int64_t i = 0; i < from.size(); ++i) from[i].bits = static_cast<uint16_t>(i);
  OnDevice<BFloat16> rows(from, device());
  OnDevice<uint64_t> to(Poisoned<uint64_t>({2, 4, 32}), device());
  Launch(device(), {"load_matrix", rows.view()}, Grid{1, 32, 512}, LoadKernel, rows.data(),
         to.data());
  const Array<uint64_t> found = to.Get();
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t lane = 0; lane < 32; ++lane) {
      const int64_t g = lane / 4, t = lane % 4, matrix = 64 * i;
      EXPECT_EQ(found[32 * i + lane], static_cast<uint64_t>((matrix + 8 * g + 2 * t) |
                                                            (matrix + 8 * g + 2 * t + 1) << 16));
      const int64_t upper = matrix + 8 * (2 * t) + g;
      EXPECT_EQ(found[32 * (4 + i) + lane], static_cast<uint64_t>(upper | (upper + 8) << 16));
    }
  }
}

// Two groups of copies. The kernel reads the first before it waits for the second. Odd lanes ask
// for zeros.
__global__ void CopyKernel(const float* from, float* to) {
  float* shared = SharedMemory<float>();
  const int lane = static_cast<int>(threadIdx.x);
  CpAsync16(shared + 4 * lane, from + 4 * lane, lane % 2 == 0);
  CpAsyncCommit();
  CpAsync8(shared + 128 + 2 * lane, from + 128 + 2 * lane, lane % 2 == 0);
  CpAsyncCommit();
  CpAsyncWait<1>();
  for (int i = 0; i < 4; ++i) to[4 * lane + i] = shared[4 * lane + i];
  CpAsyncWait<0>();
  for (int i = 0; i < 2; ++i) to[128 + 2 * lane + i] = shared[128 + 2 * lane + i];
}

TEST_F(TensorCoreTest, CopiesArriveWhenWaitedForAndFillWithZeros) {
  Array<float> from({192});
  for (int64_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
  OnDevice<float> source(from, device()), target(Poisoned<float>({192}), device());
  Launch(device(), {"copy", source.view()}, Grid{1, 32, 192 * sizeof(float)}, CopyKernel,
         source.data(), target.data());
  const Array<float> found = target.Get();
  for (int64_t i = 0; i < 128; ++i) EXPECT_EQ(found[i], i / 4 % 2 == 0 ? from[i] : 0);
  for (int64_t i = 128; i < 192; ++i) EXPECT_EQ(found[i], (i - 128) / 2 % 2 == 0 ? from[i] : 0);
}

__global__ void ArithmeticKernel(const float* from, uint64_t* packed, float* powers) {
  const int i = static_cast<int>(threadIdx.x);
  packed[i] = PackBf16(from[i], -from[i]);
  powers[i] = FastExp2(from[i]);
}

TEST_F(TensorCoreTest, PairsAreRoundedToEvenAndPowersAreOfTwo) {
  Array<float> from({32});
  for (int64_t i = 0; i < 32; ++i)
    from[i] = 1 + static_cast<float>(i) / 512;  // every fourth lies half way
  from[31] = -std::numeric_limits<float>::infinity();
  from[30] = -200;
  OnDevice<float> x(from, device()), powers(Poisoned<float>({32}), device());
  OnDevice<uint64_t> packed(Poisoned<uint64_t>({32}), device());
  Launch(device(), {"arithmetic", x.view()}, Grid{1, 32}, ArithmeticKernel, x.data(), packed.data(),
         powers.data());
  const Array<uint64_t> pairs = packed.Get();
  const Array<float> found = powers.Get();
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(pairs[i], ToBFloat16(from[i]).bits | static_cast<uint64_t>(ToBFloat16(-from[i]).bits)
                                                       << 16)
        << from[i];
    const double wanted = i < 30 ? std::exp2(static_cast<double>(from[i])) : 0;
    EXPECT_NEAR(found[i], wanted, 3e-7 * wanted);
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda
