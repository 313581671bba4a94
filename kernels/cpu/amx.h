// Products of bf16 matrices with sums in f32 in the tile registers of AMX (Intel's Advanced Matrix Extensions): for operands too
// small for a library's call. Each element of c adds its terms in ascending depth, 32 by 32, so that the position of a tile does not
// show in its bits. Thread rule: any; AmxTiles belongs to the thread that made it.
#pragma once

#include <cstdint>

#include "kernels/base/bfloat16.h"

namespace tandem::kernels {

// Whether processor and system have AMX for this process. Always false in builds with sanitizers.
bool HasAmx();
// Whether this thread multiplies in tiles: of AMX where it is, or plain ones if the thread's limit says so (vectorise.h).
bool UsesTiles();

// While one lives, the calling thread may call AmxProduct; afterwards its tiles are configured as before. REQUIRES: UsesTiles().
class AmxTiles {
 public:
  AmxTiles();
  ~AmxTiles();
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

 private:
  alignas(64) char previous_[64];
  const bool configured_;
};

// Rows of rows, columns and depth that an AmxProduct takes.
inline constexpr int64_t kAmxUnit = 32;

// c [rows, columns] = a [rows, depth] b [depth, columns], plus the old c if asked. b holds pairs: row p has elements 2p (lower half)
// and 2p + 1 of every column. Rows lie a_row, b_row and c_row elements apart.
struct AmxOperands {
  const BFloat16* a;
  int64_t a_row;
  const uint32_t* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
};
// REQUIRES: rows, columns and depth multiples of kAmxUnit; an AmxTiles on this thread.
void AmxProduct(int64_t rows, int64_t columns, int64_t depth, const AmxOperands& operands, bool accumulate);

}  // namespace tandem::kernels
