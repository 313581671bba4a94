// The most multiply-adds that the vector units do, for ceilings: independent chains in registers, nothing from memory.
// Thread rule: any thread.
#pragma once

namespace tandem::kernels {

// Floating point operations of one RunFmaPeak: some ten milliseconds.
inline constexpr double kFmaPeakFlops = 2.0 * 16 * 12 * (1 << 22);
void RunFmaPeak();

}  // namespace tandem::kernels
