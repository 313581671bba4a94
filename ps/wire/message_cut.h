// Cuts one pull or push of a client into messages: by server, then by size. No message is much
// above a limit, however large the call is. A message takes runs of ids of one or more segments, in
// order. A row's gradients keep their order, so cutting never shows in the bits.
// Thread rule: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/wire/router.h"

namespace tandem::ps {

// Ids [begin, end) of one segment's share for the message's server.
struct IdRange {
  size_t segment = 0;
  size_t begin = 0, end = 0;
};

struct CutMessage {
  int server = 0;
  std::vector<IdRange> ranges;
  size_t num_ids = 0;
  size_t row_bytes = 0;  // bytes of all rows
};

// `split[segment][server]` are the segments' ids by owner; `row_bytes[segment]` is the size of a
// row. A message holds at most `max_bytes` of ids and rows, but at least one row, and at most
// kMaxSegments ranges. The messages of a server have about the same size. The result takes messages
// of the servers in turn.
std::vector<CutMessage> CutMessages(const std::vector<std::vector<OwnedIds>>& split,
                                    const std::vector<size_t>& row_bytes, size_t max_bytes);

}  // namespace tandem::ps
