// A product of small padded matrices in plain loops that vectorise: the inside of attention, where operands are slices of one
// sequence in scratch and a library call per slice would cost more than it does. Each element of c adds its terms in ascending k.
#pragma once

#include <cstdint>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vectorise.h"

namespace tandem::kernels {

inline constexpr int64_t kTileRows = 8;

template <bool kAccumulate, class T>
inline void StartSums(const T* c, T* sums) {
  for (int l = 0; l < kLanes; ++l) sums[l] = kAccumulate ? c[l] : T(0);
}

template <class T>
inline void StoreSums(const T* sums, T* c) {
  for (int l = 0; l < kLanes; ++l) c[l] = sums[l];
}

// A tile c [kTileRows, kLanes]. Eight named arrays, for the compiler keeps these in registers and not one [8][16] array.
template <bool kAccumulate, class T>
inline void MultiplyTile(int64_t k, const T* __restrict__ a, int64_t a_row, int64_t a_depth, const T* __restrict__ b,
                         int64_t b_row, T* __restrict__ c, int64_t c_row) {
  T s0[kLanes], s1[kLanes], s2[kLanes], s3[kLanes], s4[kLanes], s5[kLanes], s6[kLanes], s7[kLanes];
  StartSums<kAccumulate>(c, s0);
  StartSums<kAccumulate>(c + c_row, s1);
  StartSums<kAccumulate>(c + 2 * c_row, s2);
  StartSums<kAccumulate>(c + 3 * c_row, s3);
  StartSums<kAccumulate>(c + 4 * c_row, s4);
  StartSums<kAccumulate>(c + 5 * c_row, s5);
  StartSums<kAccumulate>(c + 6 * c_row, s6);
  StartSums<kAccumulate>(c + 7 * c_row, s7);
  for (int64_t d = 0; d < k; ++d, a += a_depth, b += b_row) {
    const T f0 = a[0], f1 = a[a_row], f2 = a[2 * a_row], f3 = a[3 * a_row];
    const T f4 = a[4 * a_row], f5 = a[5 * a_row], f6 = a[6 * a_row], f7 = a[7 * a_row];
    for (int l = 0; l < kLanes; ++l) {
      const T value = b[l];
      s0[l] += f0 * value;
      s1[l] += f1 * value;
      s2[l] += f2 * value;
      s3[l] += f3 * value;
      s4[l] += f4 * value;
      s5[l] += f5 * value;
      s6[l] += f6 * value;
      s7[l] += f7 * value;
    }
  }
  StoreSums(s0, c);
  StoreSums(s1, c + c_row);
  StoreSums(s2, c + 2 * c_row);
  StoreSums(s3, c + 3 * c_row);
  StoreSums(s4, c + 4 * c_row);
  StoreSums(s5, c + 5 * c_row);
  StoreSums(s6, c + 6 * c_row);
  StoreSums(s7, c + 7 * c_row);
}

// c [m, n] = a [m, k] b [k, n] (plus the old c). Element (i, d) of a is a[i * a_row + d * a_depth]; rows of b and c are
// contiguous, b_row and c_row apart. REQUIRES: m a multiple of kTileRows, n of kLanes.
template <bool kAccumulate, class T>
void SmallMatmul(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_depth, const T* b, int64_t b_row,
                 T* c, int64_t c_row) {
  Vectorised([=] {
    for (int64_t i = 0; i < m; i += kTileRows) {
      for (int64_t j = 0; j < n; j += kLanes) {
        MultiplyTile<kAccumulate>(k, a + i * a_row, a_row, a_depth, b + j, b_row, c + i * c_row + j, c_row);
      }
    }
  });
}

}  // namespace tandem::kernels
