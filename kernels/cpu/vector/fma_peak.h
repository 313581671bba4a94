// The most multiply-adds that the vector units do, for ceilings: independent chains in registers, nothing from memory.
// Thread rule: any thread.
#pragma once

namespace tandem::kernels {

// Floating point operations of one RunFmaPeak: a tenth of a millisecond, so that the clock of what ran before lasts.
inline constexpr double kFmaPeakFlops = 2.0 * 16 * 12 * (1 << 16);
void RunFmaPeak();

}  // namespace tandem::kernels
