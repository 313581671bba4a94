// Where an array lives, and what this machine has. A CPU is always there; CUDA is found when the build is configured and its
// driver when the program runs (kernels/cuda/).
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
  bool built_in = false;    // this binary was built with the CUDA toolkit
  int runtime_version = 0;  // 13000 for 13.0
  int num_devices = 0;      // 0 also where there is no driver
  std::string why_none;     // why num_devices is 0
};
CudaInfo QueryCuda();

// Floating point operations a second of dense matrix products with operands of `dtype`, at the highest clock; 0: not known, as of CPUs.
double PeakFlops(Device device, DType dtype);

}  // namespace tandem
