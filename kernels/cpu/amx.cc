#include "kernels/cpu/amx.h"

#include "kernels/base/check.h"
#include "kernels/cpu/vectorise.h"

#ifdef TANDEM_VECTOR_COPIES
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tandem::kernels {

namespace {

bool PlainTiles() { return InstructionSetLimit::Current() == InstructionSet::PLAIN_TILES; }

// The sums of AmxProduct in an order of their own.
void PlainProduct(int64_t rows, int64_t columns, int64_t depth, const AmxOperands& o, bool accumulate) {
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

}  // namespace

bool UsesTiles() { return PlainTiles() || (HasAmx() && InstructionSetLimit::Current() == InstructionSet::AMX); }

#ifdef TANDEM_VECTOR_COPIES

namespace {

// A process must ask before it may use tiles, whose state the system saves (arch/x86 ABI of Linux, xstate.rst).
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

}  // namespace

bool HasAmx() {
  static const bool has = AskForTiles();
  return has;
}

AmxTiles::AmxTiles() : configured_(!PlainTiles()) {
  if (!configured_) return;
  static const TileConfiguration configuration;
  SaveConfiguration(previous_);
  Configure(&configuration);
}

AmxTiles::~AmxTiles() {
  if (configured_) Configure(previous_);
}

// Four tiles of sums; each pair of tiles of a and of b is used twice.
void AmxProduct(int64_t rows, int64_t columns, int64_t depth, const AmxOperands& o, bool accumulate) {
  if (PlainTiles()) return PlainProduct(rows, columns, depth, o, accumulate);
  const int64_t a_bytes = o.a_row * 2, b_bytes = o.b_row * 4, c_bytes = o.c_row * 4;
  for (int64_t i = 0; i < rows; i += kAmxUnit) {
    for (int64_t j = 0; j < columns; j += kAmxUnit) {
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
      for (int64_t d = 0; d < depth; d += kAmxUnit) {
        const BFloat16* a = o.a + i * o.a_row + d;
        const uint32_t* b = o.b + d / 2 * o.b_row + j;
        _tile_loadd(4, a, a_bytes);
        _tile_loadd(6, b, b_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 16, b_bytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + kRowsOfTile * o.a_row, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _tile_stored(0, c0, c_bytes);
      _tile_stored(1, c0 + 16, c_bytes);
      _tile_stored(2, c1, c_bytes);
      _tile_stored(3, c1 + 16, c_bytes);
    }
  }
}

#else

bool HasAmx() { return false; }
AmxTiles::AmxTiles() : configured_(false) { TANDEM_CHECK(PlainTiles()); }
AmxTiles::~AmxTiles() = default;
void AmxProduct(int64_t rows, int64_t columns, int64_t depth, const AmxOperands& o, bool accumulate) {
  PlainProduct(rows, columns, depth, o, accumulate);
}

#endif

}  // namespace tandem::kernels
