#include "kernels/cpu/matmul_pack.h"

#include <cstring>

#include "kernels/cpu/vectorise.h"

namespace tandem::kernels {

namespace {

// A tile is 16 vectors of 16 words; a word is one f32 or two bf16 that stay together.
constexpr int64_t kWords = 16;
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(64)));

// Lane j of the results of one step of a transposition: whole blocks of kWidth lanes change places between two vectors.
template <int kWidth>
inline void Exchange(Words& a, Words& b) {
  Words low, high;
  for (uint32_t j = 0; j < kWords; ++j) {
    low[j] = (j & kWidth) ? kWords + j - kWidth : j;
    high[j] = (j & kWidth) ? kWords + j : j + kWidth;
  }
  const Words a_before = a;
  a = __builtin_shuffle(a_before, b, low);
  b = __builtin_shuffle(a_before, b, high);
}

template <int kWidth>
inline void ExchangeAll(Words (&tile)[kWords]) {
#pragma GCC unroll 16
  for (int i = 0; i < kWords; ++i) {
    if ((i & kWidth) == 0) Exchange<kWidth>(tile[i], tile[i + kWidth]);
  }
}

inline void TransposeTile(Words (&tile)[kWords]) {
  ExchangeAll<1>(tile);
  ExchangeAll<2>(tile);
  ExchangeAll<4>(tile);
  ExchangeAll<8>(tile);
}

// The first num_bytes (at most 64) at `from`, zeros after them.
inline void LoadStart(const void* from, int64_t num_bytes, Words& x) {
  if (num_bytes >= 64) {
    std::memcpy(&x, from, 64);
    return;
  }
  x = Words{};
  if (num_bytes > 0) std::memcpy(&x, from, static_cast<size_t>(num_bytes));
}

inline void StoreVector(const Words& x, void* to) { std::memcpy(to, &x, 64); }

// (a0 b0 a1 b1 ...) of two vectors of 32 halves: lanes 0 .. 15 of both, then 16 .. 31.
inline void Interleave(const Words& a, const Words& b, Words& first, Words& second) {
  Halves low, high;
  for (uint16_t j = 0; j < 32; ++j) {
    low[j] = static_cast<uint16_t>((j & 1) * 32 + j / 2);
    high[j] = static_cast<uint16_t>((j & 1) * 32 + 16 + j / 2);
  }
  first = (Words)__builtin_shuffle((Halves)a, (Halves)b, low);
  second = (Words)__builtin_shuffle((Halves)a, (Halves)b, high);
}

// b [k, n]: rows of the panel are rows of b, for bf16 two of them interleaved.
template <class T>
inline void PackStraight(const StoredMatrix<T>& b, int64_t panel, int64_t begin, int64_t end, T* output) {
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

// b [n, k]: a transposition of words in both types.
template <class T>
inline void PackTransposed(const StoredMatrix<T>& b, int64_t panel, int64_t begin, int64_t end, T* output) {
  constexpr int64_t kSize = sizeof(T), kPerWord = 4 / kSize;
  const int64_t first = panel * kPanelColumns;
  for (int64_t d = begin; d < end; d += kPanelDepth<T>) {
    for (int64_t c = 0; c < kPanelColumns; c += kWords) {
      Words tile[kWords];
      for (int64_t i = 0; i < kWords; ++i) {
        const int64_t column = first + c + i;
        LoadStart(b.data + column * b.stride + d, column < b.n ? (b.k - d) * kSize : 0, tile[i]);
      }
      TransposeTile(tile);
      T* to = output + d * kPanelColumns + c * kPerWord;
      for (int64_t i = 0; i < kWords; ++i) StoreVector(tile[i], to + i * kPanelColumns * kPerWord);
    }
  }
}

// `count` rows of the result, row_bytes apart.
inline void StoreTile(const Words (&tile)[kWords], int64_t count, int64_t row_bytes, char* to) {
  if (count >= kWords) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < kWords; ++i) StoreVector(tile[i], to + i * row_bytes);
  } else {
    for (int64_t i = 0; i < count; ++i) StoreVector(tile[i], to + i * row_bytes);
  }
}

}  // namespace

template <class T>
void PackPanel(const StoredMatrix<T>& b, int64_t panel, int64_t begin, int64_t end, T* output) {
  Vectorised([&] {
    if (b.transposed) PackTransposed(b, panel, begin, end, output);
    else PackStraight(b, panel, begin, end, output);
  });
}

template <class T>
void PackRows(const T* a, int64_t stride, int64_t k, int64_t first, int64_t count, int64_t depth, T* rows) {
  constexpr int64_t kPerVector = kPanelDepth<T>, kSize = sizeof(T);
  Vectorised([=] {
    for (int64_t d = 0; d < depth; d += kPerVector) {
      for (int64_t i = 0; i < count; i += kPerVector) {
        const T* from = a + d * stride + first + i;
        const int64_t bytes = (count - i) * kSize;
        char* to = reinterpret_cast<char*>(rows + i * depth + d);
        Words tile[kWords];
        if constexpr (kSize == 4) {
          for (int64_t j = 0; j < kWords; ++j) LoadStart(from + j * stride, d + j < k ? bytes : 0, tile[j]);
        } else {
          Words upper[kWords];
          for (int64_t j = 0; j < kWords; ++j) {
            Words row, next;
            LoadStart(from + 2 * j * stride, d + 2 * j < k ? bytes : 0, row);
            LoadStart(from + (2 * j + 1) * stride, d + 2 * j + 1 < k ? bytes : 0, next);
            Interleave(row, next, tile[j], upper[j]);
          }
          TransposeTile(upper);
          StoreTile(upper, count - i - kWords, depth * kSize, to + kWords * depth * kSize);
        }
        TransposeTile(tile);
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
