// The CUDA calls that kernels/memory and process groups need: memory, queues, copies and sums.
// Defined in kernels/cuda (runtime.cc, add_to.cu). Without the CUDA toolkit, no_cuda.cc defines
// them; each call then ends the process, because nobody can have a CUDA device.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/dtype.h"

namespace tandem::cuda {

// Memory of the device. Null if the device has no more memory or has failed.
void* AllocateMemory(size_t num_bytes, int device);
void FreeMemory(void* memory, int device);
size_t AvailableBytes(int device);  // free device memory; 0 if the device does not say
// Page-locked host memory; copies to and from devices do not wait. Null if there is no more.
void* AllocatePinnedMemory(size_t num_bytes);
void FreePinnedMemory(void* memory);

// A queue of kernels and copies that runs beside other queues (a cudaStream_t).
void* MakeQueue(int device);
// Waits first, because the memory of the queue's kernels is reused when the owner is gone. Waits
// some seconds at most; an owner that needs the results has already waited.
void DestroyQueue(void* queue);
// Copies between any two places of host and device, in the queue's order. Host memory that is not
// pinned must not change until the copy has run.
absl::Status CopyAsync(void* to, const void* from, size_t num_bytes, void* queue);
// Like CopyAsync, but writes one byte value everywhere. `device` is the queue's.
absl::Status SetBytesAsync(void* to, int value, size_t num_bytes, int device, void* queue);
// How long the host waits for a device. A kernel that never ends blocks a device for good. Far
// longer than a full queue takes to run.
inline constexpr absl::Duration kDeviceTimeout = absl::Minutes(10);
// Waits until all submitted work has run. DeadlineExceeded after `timeout`.
absl::Status WaitForQueue(void* queue, absl::Duration timeout = kDeviceTimeout);

// sum[i] += x[i], in the order of `queue`, a queue of `device`. Integers wrap.
// REQUIRES: dtype is not bf16.
absl::Status AddTo(DType dtype, void* sum, const void* x, int64_t count, int device, void* queue);

// Records what is submitted to `queue` until EndRecording, instead of running it. Other queues,
// other threads and allocations work as usual. Waiting for the queue, or copying to or from host
// memory that is not pinned, spoils the recording.
absl::Status BeginRecording(void* queue);
// Ends the recording, also after an error. Returns a graph (a cudaGraphExec_t) for DestroyGraph.
absl::StatusOr<void*> EndRecording(void* queue);
// Submits the recorded work with its recorded arguments.
absl::Status LaunchGraph(void* graph, void* queue);
// REQUIRES: no queue has the graph still to run.
void DestroyGraph(void* graph);

// A point in a queue. Other queues can wait for a recorded event (WaitForEvent). A timed event also
// knows when its queue reached it. Null if the device has failed; calls with a null event return an
// error.
void* MakeEvent(int device, bool timed);
void DestroyEvent(void* event);
absl::Status RecordEvent(void* event, void* queue);
absl::Status WaitForEvent(void* event, void* queue);
// True if the queue has reached the event. Never waits.
absl::StatusOr<bool> QueryEvent(void* event);
// Device time between two events.
// REQUIRES: both are timed, and their queues have reached them.
absl::StatusOr<double> SecondsBetween(void* from, void* to);

// A named range of the calling thread's submissions for NVIDIA's tools (NVTX). Ranges nest. `name`
// is a string literal.
void PushRange(const char* name);
void PopRange();

// Makes `device` the calling thread's current device, for libraries that use the current device.
absl::Status UseDevice(int device);

}  // namespace tandem::cuda
