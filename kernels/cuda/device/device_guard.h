// Sets the device for this thread's calls of the runtime, while the guard lives. A guard restores
// the device of the guard around it. The outermost guard leaves its device in place: a new thread's
// device is 0, and setting it back would create a context there. A context takes half a gigabyte,
// on a device that the process may not use. So code that needs a device makes a guard and never
// relies on the thread's current device.
// Thread rule: a guard is about the calling thread.
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::cuda {

class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : outer_(innermost_) {
    int current = -1;
    // A thread that has chosen no device also reports 0. That is fine: no context is created here
    // on another device.
    error_ = cudaGetDevice(&current);
    if (error_ == cudaSuccess && current != device) error_ = cudaSetDevice(device);
    innermost_ = device;
  }
  ~DeviceGuard() {
    if (outer_ != kNone && outer_ != innermost_) cudaSetDevice(outer_);
    innermost_ = outer_;
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  cudaError_t error() const { return error_; }

 private:
  static constexpr int kNone = -1;
  static inline thread_local int innermost_ = kNone;

  const int outer_;
  cudaError_t error_;
};

}  // namespace tandem::cuda
