// Measures the peak multiply-add rate of the vector units, for ceilings: independent chains in
// registers, no memory access.
// Thread rule: any thread.
#pragma once

namespace tandem::kernels {

// Floating point operations of one RunFmaPeak. One run takes a tenth of a millisecond, so the clock
// speed of the work before it still holds.
inline constexpr double kFmaPeakFlops = 2.0 * 16 * 12 * (1 << 16);
void RunFmaPeak();

}  // namespace tandem::kernels
