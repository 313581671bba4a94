// The few CUDA runtime functions besides launches that the host code of kernels/cuda calls, for
// tests without a device.
// Emulates two devices and remembers each thread's current one. Compiled with the toolkit's
// headers.
#include <cuda_runtime_api.h>

namespace {

thread_local int current_device = 0;

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device > 1) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}
int emulated_device_waits = 0;
cudaError_t cudaDeviceSynchronize() {
  ++emulated_device_waits;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "cudaErrorInvalidDevice" : "an error";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidDevice ? "invalid device ordinal" : "an error";
}

}  // extern "C"
