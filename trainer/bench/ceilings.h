// What this machine can do at best, measured beside what is compared with it.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/base/device.h"
#include "kernels/base/dtype.h"

namespace tandem::bench {

struct Ceilings {
  double f32_matmul = 0, bf16_matmul = 0;  // floating point operations a second
  double f32_split = 0;                    // the same of f32 in pieces of bf16, which are made already; 0 where no product is computed so
  double f32_fma = 0;                      // the same of multiply-adds in registers, at the clock that matrix products leave a processor
  double f32_fma_alone = 0;                // and at the clock of nothing else; 0 for a device
  double copy_bytes = 0;                   // bytes read plus bytes written a second
};
// Of `threads` threads of the CPU together: 512 x 512 x 512 by oneDNN and in pieces, copies of 32 MB. `operands` of the products whose
// clock f32_fma is measured at: F32 or BF16.
Ceilings MeasureCeilings(int threads, DType operands);
// Of a CUDA device: 8,192 x 8,192 x 8,192 by cuBLASLt (f32: 4,096), copies of 512 MiB; f32_fma by NVIDIA's figures.
absl::StatusOr<Ceilings> MeasureDeviceCeilings(Device device);
Ceilings Mean(const Ceilings& a, const Ceilings& b);

}  // namespace tandem::bench
