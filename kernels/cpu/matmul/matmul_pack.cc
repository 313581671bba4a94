#include "kernels/cpu/matmul/matmul_pack.h"

#include "kernels/cpu/vector/vectorise.h"
#include "kernels/cpu/vector/word_tiles.h"

namespace tandem::kernels {

namespace {

// b is stored [k, n]: rows of the panel are rows of b; bf16 interleaves two rows.
template <class T>
inline void PackStraight(const StoredMatrix<T>& b, int64_t panel, int64_t begin, int64_t end,
                         T* output) {
  constexpr int64_t kPerVector = kPanelDepth<T>, kSize = sizeof(T), kRows = 4 / kSize;
  const int64_t first = panel * kPanelColumns;
  for (int64_t d = begin; d < end; d += kRows) {
#pragma GCC unroll 4
    for (int64_t c = 0; c < kPanelColumns; c += kPerVector) {
      const T* from = b.data + d * b.stride + first + c;
      const int64_t bytes = (b.n - first - c) * kSize;
      T* to = output + d * kPanelColumns + kRows * c;
      Words row;
      LoadStart(from, d < b.k ? bytes : 0, row);
      if constexpr (kRows == 1) {
        StoreVector(row, to);
      } else {
        Words next, low, high;
        LoadStart(from + b.stride, d + 1 < b.k ? bytes : 0, next);
        Interleave(row, next, low, high);
        StoreVector(low, to);
        StoreVector(high, to + kPerVector);
      }
    }
  }
}

// b is stored [n, k]: a transpose of words for both types.
template <class T>
inline void PackTransposed(const StoredMatrix<T>& b, int64_t panel, int64_t begin, int64_t end,
                           T* output) {
  constexpr int64_t kSize = sizeof(T), kPerWord = 4 / kSize;
  const int64_t first = panel * kPanelColumns;
  for (int64_t d = begin; d < end; d += kPanelDepth<T>) {
    for (int64_t c = 0; c < kPanelColumns; c += kTileWords) {
      Words tile[kTileWords];
      for (int64_t i = 0; i < kTileWords; ++i) {
        const int64_t column = first + c + i;
        LoadStart(b.data + column * b.stride + d, column < b.n ? (b.k - d) * kSize : 0, tile[i]);
      }
      TransposeWords(tile);
      T* to = output + d * kPanelColumns + c * kPerWord;
      for (int64_t i = 0; i < kTileWords; ++i)
        StoreVector(tile[i], to + i * kPanelColumns * kPerWord);
    }
  }
}

// Stores the first `count` rows of the tile, row_bytes apart.
inline void StoreTile(const Words (&tile)[kTileWords], int64_t count, int64_t row_bytes, char* to) {
  if (count >= kTileWords) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kTileWords; ++i) StoreVector(tile[i], to + i * row_bytes);
  } else {
    for (int64_t i = 0; i < count; ++i) StoreVector(tile[i], to + i * row_bytes);
  }
}

}  // namespace

template <class T>
void PackPanel(const StoredMatrix<T>& b, int64_t panel, int64_t begin, int64_t end, T* output) {
  Vectorised([&] {
    if (b.transposed)
      PackTransposed(b, panel, begin, end, output);
    else
      PackStraight(b, panel, begin, end, output);
  });
}

template <class T>
void PackRows(const T* a, int64_t stride, int64_t k, int64_t first, int64_t count, int64_t depth,
              T* rows) {
  constexpr int64_t kPerVector = kPanelDepth<T>, kSize = sizeof(T);
  Vectorised([=] {
    for (int64_t d = 0; d < depth; d += kPerVector) {
      for (int64_t i = 0; i < count; i += kPerVector) {
        const T* from = a + d * stride + first + i;
        const int64_t bytes = (count - i) * kSize;
        char* to = reinterpret_cast<char*>(rows + i * depth + d);
        Words tile[kTileWords];
        if constexpr (kSize == 4) {
          for (int64_t j = 0; j < kTileWords; ++j)
            LoadStart(from + j * stride, d + j < k ? bytes : 0, tile[j]);
        } else {
          Words upper[kTileWords];
          for (int64_t j = 0; j < kTileWords; ++j) {
            Words row, next;
            LoadStart(from + 2 * j * stride, d + 2 * j < k ? bytes : 0, row);
            LoadStart(from + (2 * j + 1) * stride, d + 2 * j + 1 < k ? bytes : 0, next);
            Interleave(row, next, tile[j], upper[j]);
          }
          TransposeWords(upper);
          StoreTile(upper, count - i - kTileWords, depth * kSize, to + kTileWords * depth * kSize);
        }
        TransposeWords(tile);
        StoreTile(tile, count - i, depth * kSize, to);
      }
    }
  });
}

template void PackPanel(const StoredMatrix<float>&, int64_t, int64_t, int64_t, float*);
template void PackPanel(const StoredMatrix<BFloat16>&, int64_t, int64_t, int64_t, BFloat16*);
template void PackRows(const float*, int64_t, int64_t, int64_t, int64_t, int64_t, float*);
template void PackRows(const BFloat16*, int64_t, int64_t, int64_t, int64_t, int64_t, BFloat16*);

}  // namespace tandem::kernels
