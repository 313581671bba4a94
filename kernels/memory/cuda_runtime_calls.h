// What kernels/base and process groups need of CUDA: memory, queues, copies and sums. Defined in kernels/cuda (runtime.cc, add_to.cu), or
// without the toolkit in no_cuda.cc, where each call says so and ends the process: nobody has a CUDA device then.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/dtype.h"

namespace tandem::cuda {

// Memory of the device; null if it has no more, or has failed.
void* AllocateMemory(size_t num_bytes, int device);
void FreeMemory(void* memory, int device);
size_t AvailableBytes(int device);  // of memory; 0 if the device does not say
// Page-locked memory of the host, which copies to and from devices without waiting; null if there is no more.
void* AllocatePinnedMemory(size_t num_bytes);
void FreePinnedMemory(void* memory);

// A queue of kernels and copies that runs beside other queues (a cudaStream_t).
void* MakeQueue(int device);
// Waits first: what the queue's kernels use goes to others as soon as the owner is gone. Some seconds at most, for an owner that cares
// has waited.
void DestroyQueue(void* queue);
// Copies between any two places of host and device when the queue comes to it. Host memory that is not pinned must not change until then.
absl::Status CopyAsync(void* to, const void* from, size_t num_bytes, void* queue);
// The same of one byte over and over; `device` is the queue's.
absl::Status SetBytesAsync(void* to, int value, size_t num_bytes, int device, void* queue);
// How long the host waits for a device, which a kernel that never ends keeps for good: far longer than what a queue has room for takes.
inline constexpr absl::Duration kDeviceTimeout = absl::Minutes(10);
// Until all that was submitted so far has run; DeadlineExceeded if that takes longer than `timeout`.
absl::Status WaitForQueue(void* queue, absl::Duration timeout = kDeviceTimeout);

// sum[i] += x[i] when the queue, which is of `device`, comes to it; integers wrap. REQUIRES: dtype is not bf16.
absl::Status AddTo(DType dtype, void* sum, const void* x, int64_t count, int device, void* queue);

// What `queue` is given until EndRecording is recorded and does not run. Other queues, other threads and requests for memory go on as
// ever; waits for the queue, and copies to or from host memory that is not pinned, spoil the recording.
absl::Status BeginRecording(void* queue);
// Ends it in any case. A graph (a cudaGraphExec_t), which DestroyGraph destroys.
absl::StatusOr<void*> EndRecording(void* queue);
// Submits all that was recorded, with the arguments that it had.
absl::Status LaunchGraph(void* graph, void* queue);
// REQUIRES: no queue has still to run it.
void DestroyGraph(void* graph);

// A point in a queue. `recorded` points of one queue hold others up (WaitForEvent). A timed one also knows when the queue came to it.
// Null if the device has failed; calls with that return an error.
void* MakeEvent(int device, bool timed);
void DestroyEvent(void* event);
absl::Status RecordEvent(void* event, void* queue);
absl::Status WaitForEvent(void* event, void* queue);
// Whether the queue has come to it. Never waits.
absl::StatusOr<bool> QueryEvent(void* event);
// From one to the other. REQUIRES: both are timed, and their queues have come to them.
absl::StatusOr<double> SecondsBetween(void* from, void* to);

// A range of the calling thread's submissions for NVIDIA's tools (NVTX); ranges nest. `name` is a string literal.
void PushRange(const char* name);
void PopRange();

// Makes the device the calling thread's, for libraries that work on the thread's device.
absl::Status UseDevice(int device);

}  // namespace tandem::cuda
