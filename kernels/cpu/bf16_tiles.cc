#include "kernels/cpu/bf16_tiles.h"

#include <cstring>

#include "kernels/base/storage.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tandem::kernels {

namespace {

// The sums of TileProduct in an order of their own.
void PlainProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o, bool accumulate) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = accumulate ? o.c[i * o.c_row + j] : 0.0f;
      for (int64_t d = 0; d < depth; ++d) {
        const uint32_t pair = o.b[d / 2 * o.b_row + j];
        sum += ToFloat(o.a[i * o.a_row + d]) * ToFloat(BFloat16{static_cast<uint16_t>(d % 2 == 0 ? pair : pair >> 16)});
      }
      o.c[i * o.c_row + j] = sum;
    }
  }
}

inline void RoundPair(const float* lower, const float* upper, uint32_t* pairs, BFloat16* lower_row, BFloat16* upper_row) {
  uint32_t words[kLanes];
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) words[l] = BFloat16Pair::Of(lower[l], upper[l]).bits;
#pragma GCC unroll 1
  for (int l = 0; pairs != nullptr && l < kLanes; ++l) pairs[l] = words[l];
  if (lower_row == nullptr) return;
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) lower_row[l].bits = static_cast<uint16_t>(words[l]);
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) upper_row[l].bits = static_cast<uint16_t>(words[l] >> 16);
}

void RoundColumnsInVectors(const float* from, int64_t row, int64_t seen, int64_t num_rows, uint32_t* pairs, BFloat16* rows,
                           int64_t to_row) {
  Vectorised([=] {
    const float zeros[kLanes] = {};
    for (int64_t j = 0; j < num_rows; j += 2) {
      const float* lower = from + j * row;
      BFloat16 *lower_row = rows == nullptr ? nullptr : rows + j * to_row, *upper_row = rows == nullptr ? nullptr : lower_row + to_row;
      RoundPair(j < seen ? lower : zeros, j + 1 < seen ? lower + row : zeros, pairs == nullptr ? nullptr : pairs + j / 2 * row, lower_row,
                upper_row);
    }
  });
}

void RoundRowsInVectors(const float* from, int64_t rows, int64_t columns, const float* factors, int64_t factor_stride, BFloat16* to,
                        int64_t to_row) {
  Vectorised([=] {
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = factors[r * factor_stride];
      for (int64_t c = 0; c < columns; c += kLanes) {
#pragma GCC unroll 1
        for (int l = 0; l < kLanes; ++l) to[r * to_row + c + l] = ToBFloat16(factor * from[r * columns + c + l]);
      }
    }
  });
}

#ifdef TANDEM_VECTOR_COPIES

// A process must ask before it may use AMX's tiles, whose state the system saves (arch/x86 ABI of Linux, xstate.rst).
bool AskForTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if ((edx & kBf16) == 0 || (edx & kTile) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool HasDotProducts() {
  static const bool has = WidestInstructionSet() == InstructionSet::AVX512 && __builtin_cpu_supports("avx512bf16");
  return has;
}

constexpr int64_t kRowsOfTile = 16, kBytesOfRow = 64;

// All eight tiles: 16 rows of 64 bytes.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  TileConfiguration() {
    for (int t = 0; t < 8; ++t) row_bytes[t] = kBytesOfRow, rows[t] = kRowsOfTile;
  }
};
static_assert(sizeof(TileConfiguration) == 64);

__attribute__((target("amx-tile"))) void SaveConfiguration(void* to) { _tile_storeconfig(to); }
__attribute__((target("amx-tile"))) void Configure(const void* from) { _tile_loadconfig(from); }

// Four tiles of sums; each pair of tiles of a and of b is used twice.
void AmxProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o, bool accumulate, RowPrefetch& prefetch) {
  const int64_t a_bytes = o.a_row * 2, b_bytes = o.b_row * 4, c_bytes = o.c_row * 4;
  for (int64_t i = 0; i < rows; i += kTileUnit) {
    for (int64_t j = 0; j < columns; j += kTileUnit) {
      float* c0 = o.c + i * o.c_row + j;
      float* c1 = c0 + kRowsOfTile * o.c_row;
      if (accumulate) {
        _tile_loadd(0, c0, c_bytes);
        _tile_loadd(1, c0 + 16, c_bytes);
        _tile_loadd(2, c1, c_bytes);
        _tile_loadd(3, c1 + 16, c_bytes);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
      for (int64_t d = 0; d < depth; d += kTileUnit) {
        const BFloat16* a = o.a + i * o.a_row + d;
        const uint32_t* b = o.b + d / 2 * o.b_row + j;
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        prefetch.Pass(1);
        _tile_loadd(7, b + 16, b_bytes);
        _tile_dpbf16ps(1, 4, 7);
        prefetch.Pass(1);
        _tile_loadd(5, a + kRowsOfTile * o.a_row, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        prefetch.Pass(1);
        _tile_dpbf16ps(3, 5, 7);
        prefetch.Pass(1);
      }
      _tile_stored(0, c0, c_bytes);
      _tile_stored(1, c0 + 16, c_bytes);
      _tile_stored(2, c1, c_bytes);
      _tile_stored(3, c1 + 16, c_bytes);
    }
  }
}

// kDotRows rows of two vectors of sums stay in registers; a pair of elements of a is broadcast to both.
constexpr int kDotRows = 8;

__attribute__((target("avx512f,avx512bf16"))) void DotProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o,
                                                              bool accumulate, RowPrefetch& prefetch) {
  for (int64_t j = 0; j < columns; j += kTileUnit) {
    for (int64_t i = 0; i < rows; i += kDotRows) {
      prefetch.Pass(depth * kDotRows * kTileUnit / kTilePiece);
      float* c = o.c + i * o.c_row + j;
      __m512 left[kDotRows], right[kDotRows];
#pragma GCC unroll 8
      for (int r = 0; r < kDotRows; ++r) {
        left[r] = accumulate ? _mm512_loadu_ps(c + r * o.c_row) : _mm512_setzero_ps();
        right[r] = accumulate ? _mm512_loadu_ps(c + r * o.c_row + 16) : _mm512_setzero_ps();
      }
      const BFloat16* a = o.a + i * o.a_row;
      const uint32_t* b = o.b + j;
      for (int64_t d = 0; d < depth; d += 2, a += 2, b += o.b_row) {
        const __m512bh b_left = (__m512bh)_mm512_loadu_si512(b), b_right = (__m512bh)_mm512_loadu_si512(b + 16);
#pragma GCC unroll 8
        for (int r = 0; r < kDotRows; ++r) {
          int pair;
          std::memcpy(&pair, a + r * o.a_row, sizeof(pair));
          const __m512bh a_pair = (__m512bh)_mm512_set1_epi32(pair);
          left[r] = _mm512_dpbf16_ps(left[r], a_pair, b_left);
          right[r] = _mm512_dpbf16_ps(right[r], a_pair, b_right);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < kDotRows; ++r) {
        _mm512_storeu_ps(c + r * o.c_row, left[r]);
        _mm512_storeu_ps(c + r * o.c_row + 16, right[r]);
      }
    }
  }
}

// The processor's own rounding, which takes denormals for zeros, as its products do.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void RoundColumnsAtOnce(const float* from, int64_t row, int64_t seen,
                                                                                      int64_t num_rows, uint32_t* pairs, BFloat16* rows,
                                                                                      int64_t to_row) {
  alignas(64) uint16_t woven[2 * kLanes];
  for (int l = 0; l < kLanes; ++l) woven[2 * l] = static_cast<uint16_t>(l), woven[2 * l + 1] = static_cast<uint16_t>(kLanes + l);
  const __m512i order = _mm512_load_si512(woven);
  for (int64_t j = 0; j < num_rows; j += 2) {
    const __m512 lower = j < seen ? _mm512_loadu_ps(from + j * row) : _mm512_setzero_ps();
    const __m512 upper = j + 1 < seen ? _mm512_loadu_ps(from + (j + 1) * row) : _mm512_setzero_ps();
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(upper, lower);
    if (pairs != nullptr) _mm512_storeu_si512(pairs + j / 2 * row, _mm512_permutexvar_epi16(order, both));
    if (rows == nullptr) continue;
    // Masked, for g++ 12 warns of its own header's others.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + j * to_row), _mm512_maskz_extracti64x4_epi64(0xf, both, 0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + (j + 1) * to_row), _mm512_maskz_extracti64x4_epi64(0xf, both, 1));
  }
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) void RoundRowsAtOnce(const float* from, int64_t rows, int64_t columns,
                                                                                   const float* factors, int64_t factor_stride,
                                                                                   BFloat16* to, int64_t to_row) {
  for (int64_t r = 0; r < rows; ++r, from += columns, to += to_row, factors += factor_stride) {
    const __m512 factor = _mm512_set1_ps(*factors);
    for (int64_t c = 0; c < columns; c += kTileUnit) {
      const __m512 lower = _mm512_mul_ps(factor, _mm512_loadu_ps(from + c)), upper = _mm512_mul_ps(factor, _mm512_loadu_ps(from + c + 16));
      _mm512_storeu_si512(to + c, (__m512i)_mm512_cvtne2ps_pbh(upper, lower));
    }
  }
}

#endif

enum class TileKind { NONE, PLAIN, DOT_PRODUCTS, AMX };

TileKind KindOfTiles() {
  const InstructionSet limit = InstructionSetLimit::Current();
  if (limit == InstructionSet::PLAIN_TILES) return TileKind::PLAIN;
#ifdef TANDEM_VECTOR_COPIES
  if (limit >= InstructionSet::AMX && HasAmx()) return TileKind::AMX;
  if (limit >= InstructionSet::AVX512_BF16 && HasDotProducts()) return TileKind::DOT_PRODUCTS;
#endif
  return TileKind::NONE;
}

}  // namespace

bool UsesTiles() { return KindOfTiles() != TileKind::NONE; }

#ifdef TANDEM_VECTOR_COPIES

bool HasAmx() {
  static const bool has = AskForTiles();
  return has;
}

TileState::TileState() : configured_(KindOfTiles() == TileKind::AMX) {
  if (!configured_) return;
  static const TileConfiguration configuration;
  SaveConfiguration(previous_);
  Configure(&configuration);
}

TileState::~TileState() {
  if (configured_) Configure(previous_);
}

void TileProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o, bool accumulate, RowPrefetch& prefetch) {
  switch (KindOfTiles()) {
    case TileKind::AMX: return AmxProduct(rows, columns, depth, o, accumulate, prefetch);
    case TileKind::DOT_PRODUCTS: return DotProduct(rows, columns, depth, o, accumulate, prefetch);
    default: return PlainProduct(rows, columns, depth, o, accumulate);
  }
}

void RoundColumns(const float* from, int64_t row, int64_t seen, int64_t num_rows, uint32_t* pairs, BFloat16* rows, int64_t to_row) {
  if (KindOfTiles() != TileKind::PLAIN && HasDotProducts()) return RoundColumnsAtOnce(from, row, seen, num_rows, pairs, rows, to_row);
  RoundColumnsInVectors(from, row, seen, num_rows, pairs, rows, to_row);
}

void RoundRows(const float* from, int64_t rows, int64_t columns, const float* factors, int64_t factor_stride, BFloat16* to, int64_t to_row) {
  if (KindOfTiles() != TileKind::PLAIN && HasDotProducts()) {
    return RoundRowsAtOnce(from, rows, columns, factors, factor_stride, to, to_row);
  }
  RoundRowsInVectors(from, rows, columns, factors, factor_stride, to, to_row);
}

#else

bool HasAmx() { return false; }
TileState::TileState() : configured_(false) {}
TileState::~TileState() = default;
void TileProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o, bool accumulate, RowPrefetch&) {
  PlainProduct(rows, columns, depth, o, accumulate);
}
void RoundColumns(const float* from, int64_t row, int64_t seen, int64_t num_rows, uint32_t* pairs, BFloat16* rows, int64_t to_row) {
  RoundColumnsInVectors(from, row, seen, num_rows, pairs, rows, to_row);
}
void RoundRows(const float* from, int64_t rows, int64_t columns, const float* factors, int64_t factor_stride, BFloat16* to, int64_t to_row) {
  RoundRowsInVectors(from, rows, columns, factors, factor_stride, to, to_row);
}

#endif

}  // namespace tandem::kernels
