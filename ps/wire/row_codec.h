// The storage of a row's weights: f32, bf16, or int8 with one f32 scale for the row. For int8, w =
// scale * q with |q| <= 127; the scale lies behind the bytes. Updates are computed in f32 and
// rounded up or down at random when stored. The odds keep the mean to 1/65,536 of a unit
// (stochastic rounding, Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015).
// Rounding to nearest would lose every update below half a unit. The random bits are a function of
// (key, step, column), so stored bits depend on neither order nor owner. Rows on the wire
// (wire_codec.h) have the same format.
// Thread rule: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/base/random.h"

namespace tandem {
enum RowStorage : int;  // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

const char* NameOf(RowStorage storage);  // "F32", "BF16", "INT8"
// Bytes of a row's weights, including the scale.
size_t StoredBytes(RowStorage storage, uint32_t dim);

// Reads `stored` at any alignment; f32 is copied.
void DecodeWeights(RowStorage storage, const char* stored, uint32_t dim, float* weights);
// Rounds to nearest, ties to even. Used for a row's first weights.
void EncodeNearest(RowStorage storage, const float* weights, uint32_t dim, char* stored);
void EncodeStochastic(RowStorage storage, const float* weights, uint32_t dim, RandomKey key,
                      uint64_t step, char* stored);

// Calls visit(column, its stored bits) for each column, and for int8 visit(dim, the bits of the
// scale). params_hash hashes these values.
void ForEachStored(RowStorage storage, const char* stored, uint32_t dim,
                   absl::FunctionRef<void(uint32_t, uint32_t)> visit);

}  // namespace tandem::ps
