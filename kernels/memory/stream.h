// An ordered queue of kernels on one device. On a CPU a kernel runs at once, on the caller's thread
// and the stream's pool. On a CUDA device a kernel runs later, after all work submitted before it.
// Device errors appear late. The stream keeps the first error, with the name of the kernel that met
// it, and drops all later work. A CPU stream has no errors.
// Thread rule: one thread submits to a stream at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/device.h"
#include "kernels/base/thread_pool.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "kernels/memory/device_spans.h"
#include "kernels/memory/staging.h"
#include "kernels/trace/trace.h"

namespace tandem {

class Stream {
 public:
  explicit Stream(ThreadPool* pool, Device device = {});
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }
  bool on_cuda() const { return device_.is_cuda(); }
  ThreadPool& pool() const { return *pool_; }
  void* queue() const { return queue_; }  // a cudaStream_t; null on a CPU
  // The tracer that kernels report their spans to (kernel_span.h). Null: kernels report nothing.
  Tracer* tracer() const { return tracer_; }
  // Waits for the device, then gives the previous tracer its spans.
  void set_tracer(Tracer* tracer);
  // Null on a CPU and without a tracer.
  DeviceSpans* device_spans() const { return device_spans_.get(); }

  // The first error, including a shortage of device memory.
  const absl::Status& status() const;
  void Fail(absl::Status status) { status_.Update(status); }
  // Waits until all submitted work has run and returns status(). After kDeviceTimeout
  // (cuda_runtime_calls.h), or the timeout of set_timeout, status() is DeadlineExceeded. Nobody
  // waits for such a device again, and memory that it may still use is never freed. The process
  // should then end.
  absl::Status Wait();
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }
  bool is_late() const { return absl::IsDeadlineExceeded(status_); }
  // Keeps `what`, which a late device may still use, until the process ends.
  static void Abandon(std::shared_ptr<void> what);
  // Copies to the device's memory, in the stream's order. `from` is free when the call returns.
  // REQUIRES: on_cuda().
  void CopyToDevice(void* to, const void* from, size_t num_bytes);
  // Copies to host memory, waits, and returns status().
  // REQUIRES: on_cuda().
  absl::Status CopyToHost(void* to, const void* from, size_t num_bytes);
  // Device memory that holds the training step's number, for kernels to read. It holds `step` for
  // all work submitted until another step is asked for. Recorded kernels (graph.h) read the value
  // at the time they run. After the stream has failed the value is undefined.
  // REQUIRES: on_cuda().
  const uint64_t* StepOnDevice(uint64_t step);

 private:
  friend class Graph;
  // Records what is submitted until EndRecording, instead of running it. Errors of recorded work
  // are returned by EndRecording and do not reach the stream. Waiting for recorded work, or copying
  // it to the host, is such an error.
  // REQUIRES: on_cuda(), status().ok().
  absl::Status BeginRecording();
  absl::StatusOr<void*> EndRecording();

  ThreadPool* pool_;
  Device device_;
  void* queue_ = nullptr;
  std::unique_ptr<Staging> staging_;     // null on a CPU
  std::shared_ptr<Buffer> step_memory_;  // null: no kernel has asked for the step
  uint64_t step_ = 0;                    // the value in step_memory_
  bool recording_ = false;
  absl::Duration timeout_ = cuda::kDeviceTimeout;
  Tracer* tracer_ = nullptr;
  std::unique_ptr<DeviceSpans> device_spans_;
  mutable absl::Status status_;
};

}  // namespace tandem
