#include "kernels/cpu/matmul/bf16_tiles.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/bfloat16.h"
#include "kernels/cpu/vector/bf16_rounding.h"
#include "kernels/cpu/vector/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tandem::kernels {

namespace {

// Plain loops for tests; sums in an order of their own.
void PlainProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o,
                  bool accumulate) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = accumulate ? o.c[i * o.c_row + j] : 0.0f;
      for (int64_t d = 0; d < depth; ++d) {
        const BFloat16 factor = o.a[i * o.a_row + d / kTileDepths * o.a_panel + d % kTileDepths];
        const uint32_t pair =
            o.b[j / kTileColumns * o.b_panel + d / 2 * kTileColumns + j % kTileColumns];
        sum += ToFloat(factor) *
               ToFloat(BFloat16{static_cast<uint16_t>(d % 2 == 0 ? pair : pair >> 16)});
      }
      o.c[i * o.c_row + j] = sum;
    }
  }
}

// Pieces 0, 1, 2 are high, middle, low. Tiles of a group lie in [piece][half] order.
constexpr int64_t kTileBytes = 1024, kPieceBytes = 2 * kTileBytes, kGroupBytes = 3 * kPieceBytes;

void PlainSplitProduct(int64_t groups, const BFloat16* a, const BFloat16* b, float* c,
                       int64_t c_row) {
  constexpr int64_t kHalf = kTileUnit / 2, kTile = kTileBytes / 2, kPiece = kPieceBytes / 2,
                    kGroup = kGroupBytes / 2;
  constexpr int kProducts[][2] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
  for (int64_t i = 0; i < kTileUnit; ++i) {
    for (int64_t j = 0; j < kTileUnit; ++j) {
      float sum = 0;
      const auto add = [&](int64_t group, int a_piece, int b_piece) {
        const BFloat16* row =
            a + group * kGroup + a_piece * kPiece + i / kHalf * kTile + i % kHalf * kTileUnit;
        const BFloat16* column =
            b + group * kGroup + b_piece * kPiece + j / kHalf * kTile + j % kHalf * 2;
        double terms = 0;  // roughly as AMX sums 32 depths before adding to the running sum
        for (int64_t d = 0; d < kTileUnit; ++d)
          terms += ToFloat(row[d]) * ToFloat(column[d / 2 * kTileUnit + d % 2]);
        sum += static_cast<float>(terms);
      };
      for (int64_t g = 0; g < groups; ++g) {
        for (const auto& [a_piece, b_piece] : kProducts) add(g, a_piece, b_piece);
      }
      c[i * c_row + j] = sum;
    }
  }
}

#ifdef TANDEM_VECTOR_COPIES

// A process must ask the system before it uses AMX's tiles, because the system saves their state.
// (Linux, arch/x86 ABI, xstate.rst)
bool AskForTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24;
  if ((edx & kBf16) == 0 || (edx & kTile) == 0) return false;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
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

// Tiles 0 to 3 hold sums: 32 x 32 elements of c.
inline void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
inline void LoadSums(const float* c, int64_t c_row) {
  const float* lower = c + kRowsOfTile * c_row;
  _tile_loadd(0, c, c_row * 4);
  _tile_loadd(1, c + 16, c_row * 4);
  _tile_loadd(2, lower, c_row * 4);
  _tile_loadd(3, lower + 16, c_row * 4);
}
inline void StoreSums(float* c, int64_t c_row) {
  float* lower = c + kRowsOfTile * c_row;
  _tile_stored(0, c, c_row * 4);
  _tile_stored(1, c + 16, c_row * 4);
  _tile_stored(2, lower, c_row * 4);
  _tile_stored(3, lower + 16, c_row * 4);
}

// A block of 32 x 32 elements of c: tiles 0 and 1 hold the upper rows' sums, 2 and 3 the lower
// rows'.
class AmxBlock {
 public:
  AmxBlock(const TileOperands& o, int64_t row, int64_t column)
      : a_(reinterpret_cast<const char*>(o.a + row * o.a_row)),
        a_row_(o.a_row * 2),
        a_step_(o.a_panel * 2),
        b_(reinterpret_cast<const char*>(o.b + column / kTileColumns * o.b_panel)),
        right_(o.b_panel * 4),
        c_(o.c + row * o.c_row + column),
        c_row_(o.c_row) {}

  void Begin(bool accumulate) const {
    if (accumulate)
      LoadSums(c_, c_row_);
    else
      ZeroSums();
  }
  // Uses each pair of tiles of a and of b twice.
  void Step(int64_t step, RowPrefetch& prefetch) const {
    const char *a = a_ + step * a_step_, *b = b_ + step * kTileBytes;
    _tile_loadd(4, a, a_row_);
    _tile_loadd(6, b, kBytesOfRow);
    _tile_dpbf16ps(0, 4, 6);
    prefetch.Pass(1);
    _tile_loadd(7, b + right_, kBytesOfRow);
    _tile_dpbf16ps(1, 4, 7);
    prefetch.Pass(1);
    _tile_loadd(5, a + kRowsOfTile * a_row_, a_row_);
    _tile_dpbf16ps(2, 5, 6);
    prefetch.Pass(1);
    _tile_dpbf16ps(3, 5, 7);
    prefetch.Pass(1);
  }
  // Runs two steps and completes the sums one by one. A store next to the following sum's products
  // costs nothing. Four stores after the last product would cost as much as three products.
  void Finish(int64_t step, RowPrefetch& prefetch) const {
    const char *a = a_ + step * a_step_, *next_a = a + a_step_, *b = b_ + step * kTileBytes,
               *next_b = b + kTileBytes;
    float* lower = c_ + kRowsOfTile * c_row_;
    _tile_loadd(4, a, a_row_);
    _tile_loadd(6, b, kBytesOfRow);
    _tile_dpbf16ps(0, 4, 6);
    prefetch.Pass(1);
    _tile_loadd(5, next_a, a_row_);
    _tile_loadd(7, next_b, kBytesOfRow);
    _tile_dpbf16ps(0, 5, 7);
    prefetch.Pass(1);
    _tile_loadd(6, b + right_, kBytesOfRow);
    _tile_dpbf16ps(1, 4, 6);
    prefetch.Pass(1);
    _tile_loadd(7, next_b + right_, kBytesOfRow);
    _tile_stored(0, c_, c_row_ * 4);
    _tile_dpbf16ps(1, 5, 7);
    prefetch.Pass(1);
    _tile_loadd(4, a + kRowsOfTile * a_row_, a_row_);
    _tile_dpbf16ps(3, 4, 6);
    prefetch.Pass(1);
    _tile_loadd(5, next_a + kRowsOfTile * a_row_, a_row_);
    _tile_stored(1, c_ + 16, c_row_ * 4);
    _tile_dpbf16ps(3, 5, 7);
    prefetch.Pass(1);
    _tile_loadd(6, b, kBytesOfRow);
    _tile_dpbf16ps(2, 4, 6);
    prefetch.Pass(1);
    _tile_loadd(7, next_b, kBytesOfRow);
    _tile_stored(3, lower + 16, c_row_ * 4);
    _tile_dpbf16ps(2, 5, 7);
    prefetch.Pass(1);
    _tile_stored(2, lower, c_row_ * 4);
  }
  void Store() const { StoreSums(c_, c_row_); }

 private:
  const char* a_;
  int64_t a_row_, a_step_;
  const char* b_;
  int64_t right_;
  float* c_;
  int64_t c_row_;
};

void AmxProduct(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o,
                bool accumulate, RowPrefetch& prefetch) {
  const int64_t steps = depth / kTileUnit;
  for (int64_t i = 0; i < rows; i += kTileUnit) {
    for (int64_t j = 0; j < columns; j += kTileUnit) {
      const AmxBlock block(o, i, j);
      block.Begin(accumulate);
      for (int64_t step = 0; step + 2 < steps; ++step) block.Step(step, prefetch);
      if (steps > 1) {
        block.Finish(steps - 2, prefetch);
      } else {
        if (steps == 1) block.Step(0, prefetch);
        block.Store();
      }
    }
  }
}

// Adds the four products of two tiles of a (4, 5) and two tiles of b (6, 7).
inline void AddProducts() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// Loads both halves of a piece.
inline void LoadA(const char* from) {
  _tile_loadd(4, from, kBytesOfRow);
  _tile_loadd(5, from + kTileBytes, kBytesOfRow);
}
inline void LoadB(const char* from) {
  _tile_loadd(6, from, kBytesOfRow);
  _tile_loadd(7, from + kTileBytes, kBytesOfRow);
}
// Prefetches a piece into L1, because the hardware prefetcher starts anew with every block.
inline void FetchPiece(const char* from) {
#pragma GCC unroll 32
  for (int64_t line = 0; line < kPieceBytes; line += kBytesOfRow)
    _mm_prefetch(from + line, _MM_HINT_T0);
}

// Each product shares one operand with the product before, whose tiles stay loaded. Prefetches the
// next group piece by piece, in the order of loading.
void AmxSplitProduct(int64_t groups, const BFloat16* a_pieces, const BFloat16* b_pieces, float* c,
                     int64_t c_row, const FetchSoon& soon) {
  const char *a = reinterpret_cast<const char*>(a_pieces),
             *b = reinterpret_cast<const char*>(b_pieces);
  constexpr int64_t kMiddle = kPieceBytes, kLow = 2 * kPieceBytes;
  const char *line = static_cast<const char*>(soon.first), *end = line + soon.num_bytes;
  const int64_t bytes_of_group =
      (soon.num_bytes / groups + kBytesOfRow - 1) / kBytesOfRow * kBytesOfRow;
  ZeroSums();
  for (int64_t g = 0; g < groups; ++g, a += kGroupBytes, b += kGroupBytes) {
    const auto multiply = [&](const char* fetched) {
      AddProducts();
      FetchPiece(fetched);
    };
    for (const char* until = std::min(end, line + bytes_of_group); line < until;
         line += kBytesOfRow)
      _mm_prefetch(line, _MM_HINT_T1);
    LoadA(a);
    LoadB(b + kLow);
    multiply(a + kGroupBytes);
    LoadB(b + kMiddle);
    multiply(b + kGroupBytes + kLow);
    LoadA(a + kMiddle);
    multiply(b + kGroupBytes + kMiddle);
    LoadB(b);
    multiply(a + kGroupBytes + kMiddle);
    LoadA(a + kLow);
    multiply(b + kGroupBytes);
    LoadA(a);
    multiply(a + kGroupBytes + kLow);
  }
  StoreSums(c, c_row);
}

// Keeps kDotRows rows of two vectors of sums in registers. Broadcasts a pair of a's elements to
// both vectors.
constexpr int kDotRows = 8;

__attribute__((target("avx512f,avx512bf16"))) void DotProduct(int64_t rows, int64_t columns,
                                                              int64_t depth, const TileOperands& o,
                                                              bool accumulate,
                                                              RowPrefetch& prefetch) {
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
      const uint32_t* b = o.b + j / kTileColumns * o.b_panel;
      for (int64_t panel = 0; panel < depth; panel += kTileDepths, a += o.a_panel) {
        for (int64_t d = 0; d < kTileDepths; d += 2, b += kTileColumns) {
          const __m512bh b_left = (__m512bh)_mm512_loadu_si512(b),
                         b_right = (__m512bh)_mm512_loadu_si512(b + o.b_panel);
#pragma GCC unroll 8
          for (int r = 0; r < kDotRows; ++r) {
            int pair;
            std::memcpy(&pair, a + r * o.a_row + d, sizeof(pair));
            const __m512bh a_pair = (__m512bh)_mm512_set1_epi32(pair);
            left[r] = _mm512_dpbf16_ps(left[r], a_pair, b_left);
            right[r] = _mm512_dpbf16_ps(right[r], a_pair, b_right);
          }
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

#endif

TileKind KindOfTiles() {
  const InstructionSet limit = InstructionSetLimit::Current();
  if (limit == InstructionSet::PLAIN_TILES) return TileKind::PLAIN;
#ifdef TANDEM_VECTOR_COPIES
  if (limit >= InstructionSet::AMX && HasAmx()) return TileKind::AMX;
  if (UsesAvx512Bf16()) return TileKind::DOT_PRODUCTS;
#endif
  return TileKind::NONE;
}

}  // namespace

bool UsesTiles() { return KindOfTiles() != TileKind::NONE; }

bool HasFastTiles() {
  const TileKind kind = KindOfTiles();
  return kind == TileKind::AMX || kind == TileKind::PLAIN;
}

void TileState::SplitProduct(int64_t groups, const BFloat16* a, const BFloat16* b, float* c,
                             int64_t c_row, [[maybe_unused]] FetchSoon soon) const {
#ifdef TANDEM_VECTOR_COPIES
  if (kind_ == TileKind::AMX) return AmxSplitProduct(groups, a, b, c, c_row, soon);
#endif
  PlainSplitProduct(groups, a, b, c, c_row);
}

#ifdef TANDEM_VECTOR_COPIES

bool HasAmx() {
  static const bool has = AskForTiles();
  return has;
}

TileState::TileState() : kind_(KindOfTiles()) {
  if (kind_ != TileKind::AMX) return;
  static const TileConfiguration configuration;
  SaveConfiguration(previous_);
  Configure(&configuration);
}

TileState::~TileState() {
  if (kind_ == TileKind::AMX) Configure(previous_);
}

void TileState::Product(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o,
                        bool accumulate, RowPrefetch& prefetch) const {
  switch (kind_) {
    case TileKind::AMX:
      return AmxProduct(rows, columns, depth, o, accumulate, prefetch);
    case TileKind::DOT_PRODUCTS:
      return DotProduct(rows, columns, depth, o, accumulate, prefetch);
    default:
      return PlainProduct(rows, columns, depth, o, accumulate);
  }
}

#else

bool HasAmx() { return false; }
TileState::TileState() : kind_(KindOfTiles()) {}
TileState::~TileState() = default;
void TileState::Product(int64_t rows, int64_t columns, int64_t depth, const TileOperands& o,
                        bool accumulate, RowPrefetch&) const {
  PlainProduct(rows, columns, depth, o, accumulate);
}

#endif

}  // namespace tandem::kernels
