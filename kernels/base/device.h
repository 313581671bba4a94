// The place of an array, and the devices of this machine. The CPU is always there. CMake finds CUDA
// when it configures the build; the program finds the driver when it runs (kernels/cuda/).
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/base/dtype.h"

namespace tandem {

enum class DeviceKind : uint8_t { CPU, CUDA };

struct Device {
  DeviceKind kind = DeviceKind::CPU;
  int index = 0;

  bool is_cuda() const { return kind == DeviceKind::CUDA; }
  bool operator==(const Device&) const = default;
};

struct CudaInfo {
  bool built_in = false;    // true if this binary was built with the CUDA toolkit
  int runtime_version = 0;  // 13000 for 13.0
  int num_devices = 0;      // 0 also without a driver
  std::string why_none;     // the reason if num_devices is 0
};
CudaInfo QueryCuda();

// Peak FLOP/s of dense matrix products with operands of `dtype`, at the highest clock. 0 if
// unknown, for example for CPUs.
double PeakFlops(Device device, DType dtype);

}  // namespace tandem
