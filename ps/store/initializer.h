// A row's first weights, as a function of (table seed, id, column) alone. So it does not matter
// which server, worker or replica touches the row first, or when. It does not matter either whether
// the row was inserted or only read.
// Thread rule: a pure function.
#pragma once

#include <cstdint>

namespace tandem::ps {

// weights[column] = stddev * N(0, 1) drawn for (seed, id, column), rounded once to f32. A stddev of
// 0 writes zeros.
void InitializeWeights(uint64_t table_seed, float stddev, uint64_t id, float* weights,
                       uint32_t dim);

}  // namespace tandem::ps
