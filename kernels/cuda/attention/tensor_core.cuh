// Tensor-core instructions of one warp and asynchronous copies to shared memory, for sm_80 and
// later. Without nvcc, the functions move the same elements between the emulator's lanes, by the
// PTX manual's fragment layouts. Lane 4 g + t holds two bf16 per operand register, the first in the
// lower half.
// Thread rule: all 32 lanes call MmaBf16 and LdMatrix together; each thread copies for itself.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>

#include "kernels/memory/storage.h"

namespace tandem::kernels::cuda {

#ifdef __CUDACC__

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// c += a b, for a of 16 x 16 and b of 16 x 8. Registers of lane 4 g + t:
// - a: rows g, g + 8, g, g + 8 of columns 2 t, 2 t, 2 t + 8, 2 t + 8, each with its right
// neighbour;
// - b: column g of rows 2 t and 2 t + 8, each with the row below;
// - c: row g of columns 2 t and 2 t + 1, then row g + 8.
__device__ inline void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four 8 x 8 matrices. Lane l passes row l % 8 of matrix l / 8: eight elements in shared
// memory. Register i receives elements 2 t and 2 t + 1 of row g of matrix i. The Transposed version
// takes column g.
// REQUIRES: rows are aligned to 16 bytes.
__device__ inline void LdMatrix(uint32_t (&x)[4], const BFloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ inline void LdMatrixTransposed(uint32_t (&x)[4], const BFloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(SharedAddress(row))
               : "memory");
}

// Starts a copy of 16 (8) bytes from global to shared memory. Unless `there`, reads nothing and
// writes zeros. Both ends are aligned.
__device__ inline void CpAsync16(void* shared, const void* global, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void CpAsync8(void* shared, const void* global, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(SharedAddress(shared)),
               "l"(global), "r"(there ? 8 : 0)
               : "memory");
}
// Makes a group of the copies started since the last commit.
__device__ inline void CpAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all of this thread's groups but the last kRemaining have arrived. Other threads see
// the data after a barrier.
template <int kRemaining>
__device__ inline void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kRemaining) : "memory");
}

// 2^x with an error of at most 2 units in the last place of f32; 0 for denormal results.
__device__ inline float FastExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Packs two floats as bf16 neighbours, rounded to nearest, ties to even.
__device__ inline uint32_t PackBf16(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

#else

namespace emulated {

inline unsigned Lane() { return emulator::LinearThread() % 32; }

// Collects the rows that the 32 lanes pass.
inline void ExchangeRows(const BFloat16* row, const BFloat16* (&rows)[32]) {
  emulator::WarpExchange(row, rows);
  for (const BFloat16* named : rows) {
    if (reinterpret_cast<uintptr_t>(named) % 16 != 0)
      emulator::Stop("a row of ldmatrix is not aligned");
  }
}

inline void StartCopy(void* shared, const void* global, bool there, size_t bytes) {
  const auto to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(global);
  if (to % bytes != 0 || (there && from % bytes != 0))
    emulator::Stop("a copy of cp.async is not aligned");
  emulator::QueueCopy(shared, there ? global : nullptr, bytes);
}

}  // namespace emulated

inline void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Operands {
    BFloat16Pair a[4], b[2];
  } all[32];
  const Operands mine{{{a[0]}, {a[1]}, {a[2]}, {a[3]}}, {{b0}, {b1}}};
  emulator::WarpExchange(mine, all);
  const unsigned g = emulated::Lane() / 4, t = emulated::Lane() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned lower = i / 2, column = 2 * t + i % 2;
    for (unsigned k = 0; k < 16; k += 2) {
      const BFloat16Pair x = all[4 * g + k % 8 / 2].a[2 * (k / 8) + lower],
                         y = all[4 * column + k % 8 / 2].b[k / 8];
      c[i] = x.first() * y.first() + c[i];
      c[i] = x.second() * y.second() + c[i];
    }
  }
}

inline void LdMatrix(uint32_t (&x)[4], const BFloat16* row) {
  const BFloat16* rows[32];
  emulated::ExchangeRows(row, rows);
  const unsigned g = emulated::Lane() / 4, t = emulated::Lane() % 4;
  for (unsigned i = 0; i < 4; ++i) x[i] = BFloat16Pair::At(rows[8 * i + g] + 2 * t).bits;
  emulator::WarpBarrier();
}
inline void LdMatrixTransposed(uint32_t (&x)[4], const BFloat16* row) {
  const BFloat16* rows[32];
  emulated::ExchangeRows(row, rows);
  const unsigned g = emulated::Lane() / 4, t = emulated::Lane() % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const BFloat16 *upper = rows[8 * i + 2 * t], *lower = rows[8 * i + 2 * t + 1];
    x[i] = upper[g].bits | static_cast<uint32_t>(lower[g].bits) << 16;
  }
  emulator::WarpBarrier();
}

inline void CpAsync16(void* shared, const void* global, bool there) {
  emulated::StartCopy(shared, global, there, 16);
}
inline void CpAsync8(void* shared, const void* global, bool there) {
  emulated::StartCopy(shared, global, there, 8);
}
inline void CpAsyncCommit() { emulator::CommitCopies(); }
template <int kRemaining>
void CpAsyncWait() {
  emulator::FinishCopies(kRemaining);
}

inline float FastExp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline uint32_t PackBf16(float first, float second) { return BFloat16Pair::Of(first, second).bits; }

#endif

}  // namespace tandem::kernels::cuda
