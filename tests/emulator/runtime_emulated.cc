#include <cstdlib>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/cuda_runtime_calls.h"
#include "kernels/base/device.h"
#include "kernels/cuda/launch.cuh"

// The emulator's device: memory of the host, full of NaN when it is new, and queues that do at once what they are given.
namespace tandem {

CudaInfo QueryCuda() { return {.built_in = true, .runtime_version = 0, .num_devices = 1, .why_none = ""}; }

namespace cuda {

// Copies and waits that still go well; from then on all fail, as those of a device that met an error do. Negative: no end.
int emulated_calls_before_failure = -1;

static absl::Status Called() {
  if (emulated_calls_before_failure == 0) return absl::InternalError("the emulated device failed");
  if (emulated_calls_before_failure > 0) --emulated_calls_before_failure;
  return absl::OkStatus();
}

void* AllocateMemory(size_t num_bytes, int) {
  constexpr size_t kAlignment = 256;
  void* memory = std::aligned_alloc(kAlignment, (num_bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory != nullptr) std::memset(memory, 0xff, num_bytes);
  return memory;
}
void FreeMemory(void* memory, int) { std::free(memory); }
void* AllocatePinnedMemory(size_t num_bytes) { return std::malloc(num_bytes); }
void FreePinnedMemory(void* memory) { std::free(memory); }

void* MakeQueue(int) { return std::malloc(1); }
void DestroyQueue(void* queue) { std::free(queue); }
absl::Status CopyAsync(void* to, const void* from, size_t num_bytes, void*) {
  const absl::Status called = Called();
  if (called.ok() && num_bytes > 0) std::memmove(to, from, num_bytes);
  if (!called.ok()) std::memset(to, 0xff, num_bytes);  // not by chance what an earlier run left there
  return called;
}
absl::Status SetBytesAsync(void* to, int value, size_t num_bytes, void*) {
  if (num_bytes > 0) std::memset(to, value, num_bytes);
  return absl::OkStatus();
}
absl::Status WaitForQueue(void*) { return Called(); }
void* MakeEvent(int) { return std::malloc(1); }
void DestroyEvent(void* event) { std::free(event); }
absl::Status RecordEvent(void*, void*) { return absl::OkStatus(); }
absl::Status WaitForEvent(void*, void*) { return absl::OkStatus(); }
absl::Status WaitOnHost(void*) { return absl::OkStatus(); }

}  // namespace cuda

namespace kernels::cuda {

void Report(Stream&, const Operation& operation, cudaError_t error) {
  TANDEM_CHECK(error == cudaSuccess) << operation.name << " of " << operation.array.shape << ": the grid is beyond a device's limits";
}

}  // namespace kernels::cuda

}  // namespace tandem
