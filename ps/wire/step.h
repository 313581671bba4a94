// Types of a training step that trainers and parameter servers share: who pushed what, how a step
// ends, how large a call is.
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"

namespace tandem::ps {

// A push's sequence is below 2^kSequenceBits, so that the trainer's number fits above the sequence
// in 64 bits.
inline constexpr int kSequenceBits = 40;

// The name of a push. Servers know a push by its name, so that a repeated push counts once.
struct PushName {
  uint32_t trainer = 0;
  uint32_t incarnation = 1;
  uint64_t sequence = 0;  // counts the trainer's pushes
};

struct TableRateValue {
  uint32_t table = 0;
  double learning_rate = 0;
};

struct CommitArgs {
  uint64_t step = 0;
  std::vector<TableRateValue> rates;
  float gradient_scale = 1;
  bool skip = false;
  // The tables are about to be read. A client that keeps gradients back (CachedClient, GeoClient)
  // pushes all of them in this step.
  bool flush = false;

  // The learning rate of a table; 0 if the table has none.
  double RateOf(uint32_t table) const {
    for (const TableRateValue& rate : rates) {
      if (rate.table == table) return rate.learning_rate;
    }
    return 0;
  }
};

struct HashResult {
  absl::uint128 hash = 0;
  uint64_t num_rows = 0;  // rows ever committed
};

// Bytes of `num_ids` ids and their rows, or gradients.
inline size_t CallBytes(size_t num_ids, size_t dim) {
  return num_ids * (sizeof(uint64_t) + dim * sizeof(float));
}

}  // namespace tandem::ps
