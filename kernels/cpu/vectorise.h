// Runs a loop compiled for the widest vectors that the processor has: the same source three times (AVX-512, AVX2, baseline),
// chosen at run time. The loop and all it calls are flattened into each copy, so it must hold no calls that cannot be inlined
// and no CHECKs. Bits do not depend on the copy: contraction to FMA is off, and sums run over a fixed number of lanes (lanes.h).
#pragma once

namespace tandem::kernels {

#if defined(__x86_64__)

template <class Loop>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,prefer-vector-width=512"), flatten, noinline)) void
RunAvx512(const Loop& loop) {
  loop();
}

template <class Loop>
__attribute__((target("avx2,fma,bmi2"), flatten, noinline)) void RunAvx2(const Loop& loop) {
  loop();
}

template <class Loop>
void Vectorised(const Loop& loop) {
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    RunAvx512(loop);
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    RunAvx2(loop);
  } else {
    loop();
  }
}

#else

template <class Loop>
void Vectorised(const Loop& loop) {
  loop();
}

#endif

}  // namespace tandem::kernels
