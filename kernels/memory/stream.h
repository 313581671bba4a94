// An ordered queue of kernels on one device. On a CPU a kernel runs at once on the caller's thread and the stream's pool; on a CUDA
// device it runs later, after what was submitted before it.
// Errors of a device come late and from nowhere: the first stays with the stream, named after the kernel that met it, and what is
// submitted afterwards is dropped. A CPU stream has none.
// Thread rule: one thread submits to a stream at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/memory/buffer.h"
#include "kernels/memory/cuda_runtime_calls.h"
#include "kernels/base/device.h"
#include "kernels/memory/device_spans.h"
#include "kernels/memory/staging.h"
#include "kernels/base/thread_pool.h"
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
  // Where kernels report their spans (kernel_span.h); null: nowhere.
  Tracer* tracer() const { return tracer_; }
  // Waits for a device, whose spans so far the tracer before gets now.
  void set_tracer(Tracer* tracer);
  DeviceSpans* device_spans() const { return device_spans_.get(); }  // null on a CPU and without a tracer

  // The first error, also of the device's memory.
  const absl::Status& status() const;
  void Fail(absl::Status status) { status_.Update(status); }
  // Waits until all that was submitted has run; returns status(), which is DeadlineExceeded from then on if that takes more than
  // kDeviceTimeout (cuda_runtime_calls.h) or what set_timeout gave. Nobody waits for such a device again, and what it may still use
  // is not given back: the process had better end.
  absl::Status Wait();
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }
  bool is_late() const { return absl::IsDeadlineExceeded(status_); }
  // Keeps what a late device may still use until the process ends.
  static void Abandon(std::shared_ptr<void> what);
  // Copies to the device's memory, in the stream's order; `from` is free when the call returns. REQUIRES: on_cuda().
  void CopyToDevice(void* to, const void* from, size_t num_bytes);
  // Copies to the host's memory, waits, and returns status(). REQUIRES: on_cuda().
  absl::Status CopyToHost(void* to, const void* from, size_t num_bytes);
  // Where kernels read the number of the training step: device memory that holds `step` for what is submitted from now on, until another
  // step is asked for; anything after the stream failed. Kernels that were recorded (graph.h) read what it holds when they run.
  // REQUIRES: on_cuda().
  const uint64_t* StepOnDevice(uint64_t step);

 private:
  friend class Graph;
  // What is submitted in between does not run, and its errors are EndRecording's, not the stream's. The host can neither wait for what
  // only comes later nor copy: that is such an error. REQUIRES: on_cuda(), status().ok().
  absl::Status BeginRecording();
  absl::StatusOr<void*> EndRecording();

  ThreadPool* pool_;
  Device device_;
  void* queue_ = nullptr;
  std::unique_ptr<Staging> staging_;  // null on a CPU
  std::shared_ptr<Buffer> step_memory_;  // null: no kernel has asked for the step
  uint64_t step_ = 0;                    // in step_memory_
  bool recording_ = false;
  absl::Duration timeout_ = cuda::kDeviceTimeout;
  Tracer* tracer_ = nullptr;
  std::unique_ptr<DeviceSpans> device_spans_;
  mutable absl::Status status_;
};

}  // namespace tandem
