// How a row's weights are stored: f32, bf16, or int8 with one f32 scale for the row (w = scale * q, |q| <= 127; the scale lies
// behind the bytes). Updates are computed in f32 and stored rounded up or down at random, with odds that keep the mean to a 65,536th
// of a unit (stochastic rounding, Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015): rounding to the nearest
// would lose every update below half a unit. The random bits are a function of (key, step, column): bits depend on neither order nor
// owner. Rows on the wire (wire_codec.h) look the same. Thread rule: functions of their arguments.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/base/random.h"
#include "proto/embedding.pb.h"

namespace tandem::ps {

const char* NameOf(RowStorage storage);  // "F32", "BF16", "INT8"
// Bytes of a row's weights, the scale included.
size_t StoredBytes(RowStorage storage, uint32_t dim);

// `stored` lies at any alignment; f32 is copied.
void DecodeWeights(RowStorage storage, const char* stored, uint32_t dim, float* weights);
// To the nearest, ties to even: a row's first weights.
void EncodeNearest(RowStorage storage, const float* weights, uint32_t dim, char* stored);
void EncodeStochastic(RowStorage storage, const float* weights, uint32_t dim, RandomKey key, uint64_t step, char* stored);

// visit(column, its stored bits), and for int8 visit(dim, the scale's bits): what params_hash is made of.
void ForEachStored(RowStorage storage, const char* stored, uint32_t dim, absl::FunctionRef<void(uint32_t, uint32_t)> visit);

}  // namespace tandem::ps
