// Cuts the bags of a client into messages: by server, then by size. A message has, in order, the
// parts of bags whose ids its server owns. A large bag is cut too, because sums of parts add up.
// Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/wire/bags.h"
#include "ps/wire/router.h"

namespace tandem::ps {

struct PooledMessage {
  int server = 0;
  std::vector<uint64_t> ids;
  std::vector<float> weights;    // empty: all 1
  std::vector<uint32_t> bags;    // the bags with a part in this message
  std::vector<uint32_t> counts;  // counts[i]: ids of bags[i] in this message
};

// A message holds at most `max_bytes` of ids and rows of bags, but at least one id. Returns
// InvalidArgument like CheckBags.
absl::StatusOr<std::vector<PooledMessage>> CutBags(const Bags& bags, const Router& router,
                                                   size_t dim, size_t max_bytes);

}  // namespace tandem::ps
