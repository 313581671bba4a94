// Where an array lives, and what this machine has. Only CPU exists so far; the CUDA room adds its kernels behind the same
// calls. CUDA is found when the build is configured and is never needed (kernels/cuda/).
#pragma once

namespace tandem {

enum class DeviceKind { CPU };

struct Device {
  DeviceKind kind = DeviceKind::CPU;
  int index = 0;
};

struct CudaInfo {
  bool built_in = false;    // this binary was built with the CUDA toolkit
  int runtime_version = 0;  // 13000 for 13.0
  int num_devices = 0;      // 0 also where there is no driver
};
CudaInfo QueryCuda();

}  // namespace tandem
