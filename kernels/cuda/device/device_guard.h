// The device that the runtime's calls of this thread are about, until the guard goes. A guard gives the device back to the
// guard around it; the outermost leaves its own in place, for a new thread stands on device 0, and to set that would make a
// context there: half a gigabyte on a device which the process may not use. So whoever needs a device has a guard; nobody
// relies on what a thread stands on.
#pragma once

#include <cuda_runtime_api.h>

namespace tandem::cuda {

class DeviceGuard {
 public:
  explicit DeviceGuard(int device) : outer_(innermost_) {
    int current = -1;
    // A thread that has chosen no device is told 0 as well: what counts is that no context is made here on another one.
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
