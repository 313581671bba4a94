// The names and counts of a training step that trainers and parameter servers both use: who pushed what, how a step ends, how large a call
// is. Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/numeric/int128.h"

namespace tandem::ps {

// A push's sequence is below 2^kSequenceBits, so that a trainer's number fits above the sequence in 64 bits.
inline constexpr int kSequenceBits = 40;

// By which servers know a push, so that it counts once.
struct PushName {
  uint32_t trainer = 0;
  uint32_t incarnation = 1;
  uint64_t sequence = 0;  // of the trainer's pushes
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
  // Somebody is about to read the tables: a client that keeps gradients back (client_cached, client_geo) pushes them all in this step.
  bool flush = false;

  // 0 if there is none.
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

// What so many ids and their rows, or gradients, take.
inline size_t CallBytes(size_t num_ids, size_t dim) { return num_ids * (sizeof(uint64_t) + dim * sizeof(float)); }

}  // namespace tandem::ps
