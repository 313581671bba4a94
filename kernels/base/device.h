// Where an array lives. Only CPU exists so far; the CUDA room adds its kernels behind the same calls.
#pragma once

namespace tandem {

enum class DeviceKind { CPU };

struct Device {
  DeviceKind kind = DeviceKind::CPU;
  int index = 0;
};

}  // namespace tandem
