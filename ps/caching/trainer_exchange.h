// An all-to-all exchange between the trainers of a host, without a server (merged_client.h). This
// folder knows no process groups, so the code that makes the client provides the exchange.
// Thread rule: one thread calls; Abort from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/memory/buffer.h"

namespace tandem::ps {

// One buffer from each trainer of the host, side by side in the order of ranks.
struct AllToAllBuffers {
  std::shared_ptr<Buffer> memory;
  std::vector<size_t> bytes;  // bytes of each buffer, by rank
};

class TrainerExchange {
 public:
  virtual ~TrainerExchange() = default;

  // Rank and number among the host's trainers.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sends every trainer its buffer, of bytes[rank], side by side from `outgoing`. Returns the
  // buffers of all trainers for this one. Every trainer calls Exchange equally often. Blocks up to
  // a deadline of its own. An error names the missing trainer, or the trainer that gave up, and
  // ends the exchange for all trainers for good.
  virtual absl::StatusOr<AllToAllBuffers> Exchange(const char* outgoing,
                                                   const std::vector<size_t>& bytes) = 0;
  // Ends the exchange for all trainers with `reason`.
  virtual void Abort(absl::Status reason) = 0;
};

}  // namespace tandem::ps
