// The best rates that this machine can reach, measured right beside the figures that are compared
// with them.
// Thread rule: free functions.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/base/device.h"
#include "kernels/base/dtype.h"

namespace tandem::bench {

struct Ceilings {
  double f32_matmul = 0, bf16_matmul = 0;  // floating point operations a second
  // f32 products in pieces of bf16 that are made already; 0 if no product is computed so.
  double f32_split = 0;
  // Multiply-adds in registers, at the clock that matrix products leave a processor.
  double f32_fma = 0;
  double f32_fma_alone = 0;  // multiply-adds in registers at the full clock; 0 for a device
  double copy_bytes = 0;     // bytes read plus bytes written a second
};
// Measures `threads` CPU threads together: 512 x 512 x 512 products by oneDNN and in pieces, and
// copies of 32 MB. `operands` is the type (F32 or BF16) of the products at whose clock f32_fma is
// measured.
Ceilings MeasureCeilings(int threads, DType operands);
// Measures a CUDA device: 8,192 x 8,192 x 8,192 products by cuBLASLt (f32: 4,096), and copies of
// 512 MiB. f32_fma is NVIDIA's figure.
absl::StatusOr<Ceilings> MeasureDeviceCeilings(Device device);
Ceilings Mean(const Ceilings& a, const Ceilings& b);

}  // namespace tandem::bench
