#include <gtest/gtest.h>
#include <vector>

#include "kernels/base/thread_pool.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/memory/cuda_runtime_calls.h"
#include "kernels/memory/event.h"
#include "tests/emulator/emulated_queue.h"

// The emulator tests CUDA kernels where there is no GPU. So it must notice the faults that it
// claims to notice.
namespace tandem::kernels::cuda {

namespace {

constexpr int kThreads = 96;

__global__ void ReverseKernel(const int* from, int* to) {
  int* room = SharedMemory<int>();
  room[threadIdx.x] = from[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  to[blockIdx.x * blockDim.x + threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

__global__ void ReverseWithoutBarrierKernel(const int* from, int* to) {
  int* room = SharedMemory<int>();
  room[threadIdx.x] = from[threadIdx.x];
  to[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}

__global__ void SumKernel(const double* from, double* warp_sums, double* block_sum) {
  __shared__ double room[32];
  const double value = from[threadIdx.x];
  warp_sums[threadIdx.x] = WarpSum(value);
  block_sum[threadIdx.x] = BlockSum(value, room);
}

__global__ void ShuffleKernel(int* xor_1, int* from_3, int* down_2, int* up_2, unsigned* even) {
  const int t = static_cast<int>(threadIdx.x);
  xor_1[t] = __shfl_xor_sync(kAllLanes, t, 1);
  from_3[t] = __shfl_sync(kAllLanes, t, 3);
  down_2[t] = __shfl_down_sync(kAllLanes, t, 2);
  up_2[t] = __shfl_up_sync(kAllLanes, t, 2);
  even[t] = __ballot_sync(kAllLanes, t % 2 == 0);
}

__global__ void HalfAtBarrierKernel() {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncwarp();
  __syncthreads();
}

__global__ void WriteBehindKernel(int count) { SharedMemory<int>()[count] = 1; }

__global__ void TrapKernel(bool good) { DeviceCheck(good); }

__global__ void PlaceKernel(int* places) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  places[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
}

__global__ void SetKernel(int value, int* to) { to[threadIdx.x] = value; }

class EmulatorTest : public ::testing::Test {
 protected:
  template <class... Parameters, class... Arguments>
  void Run(const Grid& grid, void (*kernel)(Parameters...), Arguments... arguments) {
    Launch(stream_, {"test", ArrayView()}, grid, kernel, arguments...);
  }
  void* queue() const { return stream_.queue(); }

 private:
  ThreadPool pool_{1};
  Stream stream_{&pool_, Device{DeviceKind::CUDA, 0}};
};

std::vector<int> Reversed(int blocks) {
  std::vector<int> wanted;
  for (int b = 0; b < blocks; ++b) {
    for (int t = kThreads - 1; t >= 0; --t) wanted.push_back(b * kThreads + t);
  }
  return wanted;
}

TEST_F(EmulatorTest, BarrierLetsThreadsReadWhatOthersWrote) {
  std::vector<int> from(2 * kThreads), to(2 * kThreads, -1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i);
  Run({2, kThreads, kThreads * sizeof(int)}, ReverseKernel, from.data(), to.data());
  EXPECT_EQ(to, Reversed(2));
}

TEST_F(EmulatorTest, MissingBarrierShowsInOneOfTwoRuns) {
  std::vector<int> from(kThreads), first(kThreads), second(kThreads);
  for (int i = 0; i < kThreads; ++i) from[i] = i;
  Run({1, kThreads, kThreads * sizeof(int)}, ReverseWithoutBarrierKernel, from.data(),
      first.data());
  Run({1, kThreads, kThreads * sizeof(int)}, ReverseWithoutBarrierKernel, from.data(),
      second.data());
  EXPECT_NE(first, second);
}

TEST_F(EmulatorTest, SumsOfWarpsAndBlocks) {
  std::vector<double> from(kThreads), warp_sums(kThreads), block_sum(kThreads);
  for (int i = 0; i < kThreads; ++i) from[i] = i;
  Run({1, kThreads}, SumKernel, from.data(), warp_sums.data(), block_sum.data());
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(warp_sums[i], 496 + 1024 * (i / 32));
    EXPECT_EQ(block_sum[i], kThreads * (kThreads - 1) / 2);
  }
}

TEST_F(EmulatorTest, ShufflesWithinAWarp) {
  std::vector<int> xor_1(kThreads), from_3(kThreads), down_2(kThreads), up_2(kThreads);
  std::vector<unsigned> even(kThreads);
  Run({1, kThreads}, ShuffleKernel, xor_1.data(), from_3.data(), down_2.data(), up_2.data(),
      even.data());
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_EQ(xor_1[i], i ^ 1);
    EXPECT_EQ(from_3[i], i / 32 * 32 + 3);
    EXPECT_EQ(down_2[i], i % 32 < 30 ? i + 2 : i);
    EXPECT_EQ(up_2[i], i % 32 >= 2 ? i - 2 : i);
    EXPECT_EQ(even[i], 0x55555555u);
  }
}

TEST_F(EmulatorTest, EveryThreadOfEveryBlockRunsOnce) {
  const Grid grid{dim3(2, 3, 4), dim3(4, 2, 5)};
  std::vector<int> places(2 * 3 * 4 * 4 * 2 * 5, 0);
  Run(grid, PlaceKernel, places.data());
  EXPECT_EQ(places, std::vector<int>(places.size(), 1));
}

TEST_F(EmulatorTest, RecordedKernelsKeepTheirArgumentsAndRunWithEveryLaunch) {
  std::vector<int> to(4, -1);
  ASSERT_TRUE(tandem::cuda::BeginRecording(queue()).ok());
  int value = 7;
  Run({1, 3}, SetKernel, value, to.data());
  value = 8;
  const auto graph = tandem::cuda::EndRecording(queue());
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  EXPECT_EQ(to[0], -1);
  for (int launch = 0; launch < 2; ++launch) {
    to.assign(4, -1);
    ASSERT_TRUE(tandem::cuda::LaunchGraph(*graph, queue()).ok());
    EXPECT_EQ(to, (std::vector<int>{7, 7, 7, -1}));
  }
  tandem::cuda::DestroyGraph(*graph);
}

TEST_F(EmulatorTest, WhatCudaDoesNotRecordSpoilsTheRecording) {
  const std::shared_ptr<Buffer> memory = Buffer::Allocate(64, {DeviceKind::CUDA, 0});
  int host = 3;
  Event event({DeviceKind::CUDA, 0});
  const std::vector<std::function<absl::Status()>> calls{
      [&] { return tandem::cuda::WaitForQueue(queue()); },
      [&] { return tandem::cuda::CopyAsync(memory->data(), &host, sizeof(host), queue()); },
      [&] { return tandem::cuda::CopyAsync(&host, memory->data(), sizeof(host), queue()); },
      [&] { return event.HoldUp(queue()); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    ASSERT_TRUE(tandem::cuda::BeginRecording(queue()).ok());
    EXPECT_NE(calls[i]().ToString().find("cudaErrorStreamCapture"), std::string::npos) << i;
    const auto graph = tandem::cuda::EndRecording(queue());
    EXPECT_NE(graph.status().ToString().find("cudaErrorStreamCaptureInvalidated"),
              std::string::npos)
        << i;
    EXPECT_TRUE(calls[i]().ok()) << "when nothing is recorded any more";
  }
}

TEST_F(EmulatorTest, AStreamWaitsForItsDeviceUntilADeadline) {
  Stream stream(nullptr, Device{DeviceKind::CUDA, 0});
  auto& work = *static_cast<EmulatedQueue*>(stream.queue());
  const int64_t number = work.Submit();  // and does not end by itself
  stream.set_timeout(absl::Milliseconds(30));
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream.Wait())) << stream.status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream.Wait()))
      << "its first error stays: " << stream.status();
  work.Complete(number);
}

TEST_F(EmulatorTest, ACopyToTheHostWaitsUntilADeadline) {
  Stream stream(nullptr, Device{DeviceKind::CUDA, 0});
  auto& work = *static_cast<EmulatedQueue*>(stream.queue());
  const std::shared_ptr<Buffer> memory = Buffer::Allocate(sizeof(float), {DeviceKind::CUDA, 0});
  float value = 3;
  const int64_t number = work.Submit();
  stream.set_timeout(absl::Milliseconds(30));
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream.CopyToHost(&value, memory->data(), sizeof(value))))
      << stream.status();
  EXPECT_EQ(value, 3);
  work.Complete(number);
}

using EmulatorDeathTest = EmulatorTest;

TEST_F(EmulatorDeathTest, DifferentBarriersAreNamed) {
  EXPECT_DEATH(Run({1, 64}, HalfAtBarrierKernel), "different barriers");
}

TEST_F(EmulatorDeathTest, WritingBehindSharedMemoryIsNoticed) {
  EXPECT_DEATH(Run({1, 1, 64}, WriteBehindKernel, 16), "behind its shared memory");
}

__global__ void ReadPackKernel(const float* from, float* to) { Pack<float, 4>::At(from).Put(to); }

TEST_F(EmulatorDeathTest, PackThatIsNotAlignedIsNoticed) {
  alignas(16) float from[8] = {}, to[8];
  Run({1, 1}, ReadPackKernel, from, to);
  EXPECT_DEATH(Run({1, 1}, ReadPackKernel, from + 1, to), "not aligned");
  EXPECT_DEATH(Run({1, 1}, ReadPackKernel, from, to + 2), "not aligned");
}

TEST_F(EmulatorDeathTest, FailedDeviceCheckEndsTheKernel) {
  Run({1, 1}, TrapKernel, true);
  EXPECT_DEATH(Run({1, 1}, TrapKernel, false), "trapped");
}

TEST_F(EmulatorDeathTest, GridBeyondTheLimitsIsRefused) {
  EXPECT_DEATH(Run({1, 2048}, TrapKernel, true), "beyond a device's limits");
}

}  // namespace

}  // namespace tandem::kernels::cuda
