#include <algorithm>
#include <atomic>
#include <nvtx3/nvToolsExt.h>

#include "absl/time/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/device.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/device_guard.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "kernels/trace/trace.h"

namespace tandem {

namespace {

// 13.0 for 13000.
std::string VersionName(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

std::string WhyNoDevice(cudaError_t error, int runtime_version) {
  int driver_version = 0;  // stays 0 without a driver
  if (cudaDriverGetVersion(&driver_version) != cudaSuccess || driver_version == 0) {
    return "this machine has no NVIDIA driver (or the container was started without --gpus)";
  }
  if (error == cudaErrorInsufficientDriver) {
    return absl::StrCat("the NVIDIA driver is too old: it runs CUDA ", VersionName(driver_version),
                        ", this binary was built with CUDA ", VersionName(runtime_version));
  }
  if (error == cudaSuccess || error == cudaErrorNoDevice) {
    return "the NVIDIA driver shows no device (is CUDA_VISIBLE_DEVICES empty?)";
  }
  return absl::StrCat("the NVIDIA driver does not start: ", cudaGetErrorName(error), ", ",
                      cudaGetErrorString(error));
}

}  // namespace

CudaInfo QueryCuda() {
  CudaInfo info;
  info.built_in = true;
  if (cudaRuntimeGetVersion(&info.runtime_version) != cudaSuccess) info.runtime_version = 0;
  const cudaError_t error = cudaGetDeviceCount(&info.num_devices);
  if (error != cudaSuccess) info.num_devices = 0;
  if (info.num_devices == 0) info.why_none = WhyNoDevice(error, info.runtime_version);
  cudaGetLastError();  // clears the error, so that no later call reports it
  return info;
}

// From NVIDIA's white papers of the architectures: multiplications and additions of a
// multiprocessor per cycle, in tensor cores (bf16, dense, f32 sums) and outside (f32).
double PeakFlops(Device device, DType dtype) {
  struct Architecture {
    int major, minor;
    double bf16, f32;
  };
  constexpr Architecture kArchitectures[] = {{8, 0, 2048, 128},
                                             {8, 6, 1024, 256},
                                             {8, 9, 1024, 256},
                                             {9, 0, 4096, 256},
                                             {10, 0, 8192, 256}};
  const auto attribute = [&](cudaDeviceAttr name) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, name, device.index) != cudaSuccess) cudaGetLastError();
    return value;
  };
  if (!device.is_cuda()) return 0;
  const int major = attribute(cudaDevAttrComputeCapabilityMajor),
            minor = attribute(cudaDevAttrComputeCapabilityMinor);
  for (const Architecture& a : kArchitectures) {
    if (a.major != major || a.minor != minor) continue;
    const double kilohertz = attribute(cudaDevAttrClockRate);
    return (dtype == DType::BF16 ? a.bf16 : a.f32) * attribute(cudaDevAttrMultiProcessorCount) *
           kilohertz * 1e3;
  }
  return 0;
}

namespace cuda {

namespace {

constexpr absl::Duration kLastWait = absl::Seconds(10);  // when a queue ends
constexpr absl::Duration kShortWait = absl::Milliseconds(2), kPause = absl::Microseconds(50);

// The device of the process's first memory or queue. Calls that name no device use it.
std::atomic<int> first_device{-1};

DeviceGuard Standing(int device) {
  int none = -1;
  first_device.compare_exchange_strong(none, device);
  return DeviceGuard(device);
}
DeviceGuard StandingAnywhere() { return DeviceGuard(std::max(0, first_device.load())); }

// Null if memory has run out or earlier work has failed. The next wait reports such a failure.
void* OrNull(void* made, cudaError_t error) {
  if (error == cudaSuccess) return made;
  cudaGetLastError();
  return nullptr;
}

absl::Status NoEvent() {
  return absl::InternalError("an event was not made, for the CUDA device had failed before");
}

cudaStream_t AsStream(void* queue) { return static_cast<cudaStream_t>(queue); }
cudaEvent_t AsEvent(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

void* AllocateMemory(size_t num_bytes, int device) {
  const DeviceGuard guard = Standing(device);
  void* memory = nullptr;
  const cudaError_t error = guard.error() == cudaSuccess
                                ? cudaMalloc(&memory, std::max<size_t>(num_bytes, 1))
                                : guard.error();
  return OrNull(memory, error);
}

// Errors of cudaFree come from earlier kernels, whose stream reports them, or from a process that
// ends.
void FreeMemory(void* memory, int device) {
  const DeviceGuard guard = Standing(device);
  cudaFree(memory);
}

size_t AvailableBytes(int device) {
  const DeviceGuard guard = Standing(device);
  size_t available = 0, all = 0;
  if (cudaMemGetInfo(&available, &all) == cudaSuccess) return available;
  cudaGetLastError();
  return 0;
}

void* AllocatePinnedMemory(size_t num_bytes) {
  const DeviceGuard guard = StandingAnywhere();
  void* memory = nullptr;
  const cudaError_t error =
      cudaHostAlloc(&memory, std::max<size_t>(num_bytes, 1), cudaHostAllocPortable);
  return OrNull(memory, error);
}

void FreePinnedMemory(void* memory) {
  const DeviceGuard guard = StandingAnywhere();
  cudaFreeHost(memory);
}

void* MakeQueue(int device) {
  const DeviceGuard guard = Standing(device);
  cudaStream_t queue = nullptr;
  const cudaError_t error = guard.error() == cudaSuccess
                                ? cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking)
                                : guard.error();
  // A caller cannot go on without its queue.
  TANDEM_CHECK(error == cudaSuccess)
      << "making a stream on CUDA device " << device << ": " << cudaGetErrorName(error) << ", "
      << cudaGetErrorString(error);
  return queue;
}

void DestroyQueue(void* queue) {
  WaitForQueue(queue, kLastWait).IgnoreError();
  const DeviceGuard guard = StandingAnywhere();
  cudaStreamDestroy(AsStream(queue));
}

absl::Status CopyAsync(void* to, const void* from, size_t num_bytes, void* queue) {
  if (num_bytes == 0) return absl::OkStatus();
  const DeviceGuard guard = StandingAnywhere();
  return CudaStatus(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDefault, AsStream(queue)),
                    "copying ", num_bytes, " bytes");
}

absl::Status SetBytesAsync(void* to, int value, size_t num_bytes, int device, void* queue) {
  if (num_bytes == 0) return absl::OkStatus();
  const DeviceGuard guard = Standing(device);
  return CudaStatus(cudaMemsetAsync(to, value, num_bytes, AsStream(queue)), "setting ", num_bytes,
                    " bytes");
}

// Polls at first, like cudaStreamSynchronize, which has no deadline. Long waits pause between polls
// and leave the core to others.
absl::Status WaitForQueue(void* queue, absl::Duration timeout) {
  const DeviceGuard guard = StandingAnywhere();
  const int64_t start = MonotonicNanoseconds();
  while (true) {
    const cudaError_t error = cudaStreamQuery(AsStream(queue));
    if (error != cudaErrorNotReady) return CudaStatus(error, "work on a CUDA device");
    const absl::Duration waited = absl::Nanoseconds(MonotonicNanoseconds() - start);
    if (waited > timeout) {
      return absl::DeadlineExceededError(
          absl::StrCat("a CUDA device did not end its work in ", absl::FormatDuration(timeout)));
    }
    if (waited > kShortWait) absl::SleepFor(kPause);
  }
}

// Relaxed mode: a thread may allocate memory while it records, and other threads are not affected.
absl::Status BeginRecording(void* queue) {
  const DeviceGuard guard = StandingAnywhere();
  return CudaStatus(cudaStreamBeginCapture(AsStream(queue), cudaStreamCaptureModeRelaxed),
                    "beginning to record a stream");
}

absl::StatusOr<void*> EndRecording(void* queue) {
  const DeviceGuard guard = StandingAnywhere();
  cudaGraph_t recorded = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamEndCapture(AsStream(queue), &recorded), "recording a stream"));
  cudaGraphExec_t graph = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
  cudaGraphDestroy(recorded);
  RETURN_IF_ERROR(CudaStatus(error, "making a graph of what was recorded"));
  // Uploads now, so that a device without memory for the graph fails here and not at the first
  // launch.
  absl::Status uploaded =
      CudaStatus(cudaGraphUpload(graph, AsStream(queue)), "bringing a graph to its device");
  if (!uploaded.ok()) {
    cudaGraphExecDestroy(graph);
    return uploaded;
  }
  return static_cast<void*>(graph);
}

absl::Status LaunchGraph(void* graph, void* queue) {
  const DeviceGuard guard = StandingAnywhere();
  return CudaStatus(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), AsStream(queue)),
                    "launching a graph");
}

void DestroyGraph(void* graph) {
  const DeviceGuard guard = StandingAnywhere();
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

void* MakeEvent(int device, bool timed) {
  const DeviceGuard guard = Standing(device);
  cudaEvent_t event = nullptr;
  const cudaError_t error =
      guard.error() == cudaSuccess
          ? cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming)
          : guard.error();
  return OrNull(event, error);
}

void DestroyEvent(void* event) {
  if (event == nullptr) return;
  const DeviceGuard guard = StandingAnywhere();
  cudaEventDestroy(AsEvent(event));
}

absl::Status RecordEvent(void* event, void* queue) {
  if (event == nullptr) return NoEvent();
  const DeviceGuard guard = StandingAnywhere();
  return CudaStatus(cudaEventRecord(AsEvent(event), AsStream(queue)), "recording an event");
}

absl::Status WaitForEvent(void* event, void* queue) {
  if (event == nullptr) return NoEvent();
  const DeviceGuard guard = StandingAnywhere();
  return CudaStatus(cudaStreamWaitEvent(AsStream(queue), AsEvent(event), 0),
                    "waiting for an event of another stream");
}

absl::StatusOr<bool> QueryEvent(void* event) {
  if (event == nullptr) return NoEvent();
  const DeviceGuard guard = StandingAnywhere();
  const cudaError_t error = cudaEventQuery(AsEvent(event));
  if (error == cudaErrorNotReady) return false;
  RETURN_IF_ERROR(CudaStatus(error, "work on a CUDA device"));
  return true;
}

absl::StatusOr<double> SecondsBetween(void* from, void* to) {
  if (from == nullptr || to == nullptr) return NoEvent();
  const DeviceGuard guard = StandingAnywhere();
  float milliseconds = 0;
  RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&milliseconds, AsEvent(from), AsEvent(to)),
                             "the time between two events"));
  return milliseconds * 1e-3;
}

void PushRange(const char* name) { nvtxRangePushA(name); }
void PopRange() { nvtxRangePop(); }

absl::Status UseDevice(int device) {
  return CudaStatus(cudaSetDevice(device), "choosing CUDA device ", device);
}

}  // namespace cuda

}  // namespace tandem
