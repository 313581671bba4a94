// What this machine can do at best, measured beside what is compared with it.
#pragma once

namespace tandem::cli {

// Of `threads` threads together.
struct Ceilings {
  double f32_matmul = 0, bf16_matmul = 0;  // floating point operations a second, 512 x 512 x 512 by oneDNN
  double f32_fma = 0;                      // the same of multiply-adds in registers
  double copy_bytes = 0;                   // bytes read plus bytes written a second, copying 32 MB
};
Ceilings MeasureCeilings(int threads);
Ceilings Mean(const Ceilings& a, const Ceilings& b);

}  // namespace tandem::cli
