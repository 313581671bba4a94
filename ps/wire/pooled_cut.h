// How a client cuts bags into messages: by server, then by size. A message has the parts of bags whose ids its server owns, in order;
// a bag that is large is cut too, because sums of parts add up.
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
  std::vector<uint32_t> bags;    // which bags it has parts of
  std::vector<uint32_t> counts;  // ids of each
};

// A message holds at most `max_bytes` of ids and rows of bags, but at least one id. InvalidArgument as CheckBags.
absl::StatusOr<std::vector<PooledMessage>> CutBags(const Bags& bags, const Router& router, size_t dim, size_t max_bytes);

}  // namespace tandem::ps
