// Reads and writes a few neighbouring elements as floats: by packs if the address allows packs,
// else one at a time. Both ways give a thread the same elements. So the order of a sum does not
// depend on an array's address. The caller chooses once, around all of a thread's reads: a branch
// around each read would wait for one read before it starts the next.
#pragma once

#include <type_traits>

#include "kernels/cuda/device/device.cuh"

// Goes before loops over small arrays. Such arrays lie in registers only if every index is a
// constant.
#ifdef __CUDACC__
#define TANDEM_UNROLL _Pragma("unroll")
#else
#define TANDEM_UNROLL
#endif

namespace tandem::kernels::cuda {

// x[e] = from[e] for e < left, otherwise 0. kPacks reads by packs.
// REQUIRES with kPacks: left >= kWidth, and `from` is aligned to kWidth elements or to 16 bytes,
// whichever is less.
template <bool kPacks, class T, int kWidth>
__device__ inline void ReadElements(const T* from, int64_t left, float (&x)[kWidth]) {
  if constexpr (kPacks) {
    constexpr int kStep = kWidth < kPackOf<T> ? kWidth : kPackOf<T>;
    TANDEM_UNROLL
    for (int first = 0; first < kWidth; first += kStep) {
      const Pack<T, kStep> pack = Pack<T, kStep>::At(from + first);
      TANDEM_UNROLL
      for (int e = 0; e < kStep; ++e) x[first + e] = Load(pack.values[e]);
    }
  } else {
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) x[e] = e < left ? Load(from[e]) : 0.0f;
  }
}

// to[e] = x[e], rounded to T, for e < left.
// REQUIRES: like ReadElements.
template <bool kPacks, class T, int kWidth>
__device__ inline void WriteElements(T* to, int64_t left, const Compute<T> (&x)[kWidth]) {
  if constexpr (kPacks) {
    constexpr int kStep = kWidth < kPackOf<T> ? kWidth : kPackOf<T>;
    TANDEM_UNROLL
    for (int first = 0; first < kWidth; first += kStep) {
      if constexpr (std::is_same_v<T, BFloat16> && kStep % 2 == 0) {
        // In words, because the compiler does not combine half words into one store.
        Pack<uint32_t, kStep / 2> pack;
        TANDEM_UNROLL
        for (int e = 0; e < kStep; e += 2) {
          pack.values[e / 2] =
              (RoundedBits(x[first + e]) >> 16) | (RoundedBits(x[first + e + 1]) & 0xffff0000u);
        }
        pack.Put(reinterpret_cast<uint32_t*>(to + first));
      } else {
        Pack<T, kStep> pack;
        TANDEM_UNROLL
        for (int e = 0; e < kStep; ++e) pack.values[e] = Store<T>(x[first + e]);
        pack.Put(to + first);
      }
    }
  } else {
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) {
      if (e < left) to[e] = Store<T>(x[e]);
    }
  }
}

// sum[e] += row(j)[e] for j = first, first + step, ... below `end`, in this order. Reads several
// rows before it adds them.
template <bool kPacks, int kWidth, class Row>
__device__ inline void AddRows(int64_t first, int64_t end, int64_t step, int64_t left,
                               const Row& row, float (&sum)[kWidth]) {
  constexpr int kTogether = 32 / kWidth;
  int64_t j = first;
  for (; j + (kTogether - 1) * step < end; j += kTogether * step) {
    float x[kTogether][kWidth];
    TANDEM_UNROLL
    for (int k = 0; k < kTogether; ++k) ReadElements<kPacks>(row(j + k * step), left, x[k]);
    TANDEM_UNROLL
    for (int k = 0; k < kTogether; ++k) {
      TANDEM_UNROLL
      for (int e = 0; e < kWidth; ++e) sum[e] += x[k][e];
    }
  }
  for (; j < end; j += step) {
    float x[kWidth];
    ReadElements<kPacks>(row(j), left, x);
    TANDEM_UNROLL
    for (int e = 0; e < kWidth; ++e) sum[e] += x[e];
  }
}

}  // namespace tandem::kernels::cuda
