// Packs matrix operands into the layouts that oneDNN multiplies fastest. oneDNN then copies
// nothing, and one packed copy serves many calls. f32 and bf16. Packing only rearranges, so no bit
// depends on it.
// Thread rule: pure functions on the caller's memory.
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"

namespace tandem::kernels {

// A panel holds 64 columns of b for all k: f32 as [k][64], bf16 as [k / 2][64][2] (oneDNN's
// BA16a64b and BA16a64b2a). Zeros pad columns to 64 and k to kPanelDepth.
inline constexpr int64_t kPanelColumns = 64;
template <class T>
inline constexpr int64_t kPanelDepth = 64 / static_cast<int64_t>(sizeof(T));

// The matrix b [k, n] as stored: k rows, or n rows if transposed, `stride` elements apart.
template <class T>
struct StoredMatrix {
  const T* data;
  int64_t k, n, stride;
  bool transposed;

  // Rows [d, d + depth) of b.
  StoredMatrix From(int64_t d, int64_t depth) const {
    return {data + d * (transposed ? 1 : stride), depth, n, stride, transposed};
  }
};

// Packs depths [begin, end) of panel number `panel` of b. `output` is the panel's first element.
// Elements past the end of b become zero.
// REQUIRES: begin and end are multiples of kPanelDepth.
template <class T>
void PackPanel(const StoredMatrix<T>& b, int64_t panel, int64_t begin, int64_t end, T* output);

// rows[i, d] = a[d, first + i] for i < count and d < k; zero for d from k to depth. a is stored [k,
// stride], rows [count, depth].
// REQUIRES: depth is a multiple of kPanelDepth.
template <class T>
void PackRows(const T* a, int64_t stride, int64_t k, int64_t first, int64_t count, int64_t depth,
              T* rows);

}  // namespace tandem::kernels
