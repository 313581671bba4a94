// What the trainers of a host hand each other without a server in between (client_merged); this room knows no process groups, so
// whoever makes the client brings one.
// Thread rule: one thread calls; Abort from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/memory/buffer.h"

namespace tandem::ps {

// From each trainer of the host one, side by side in the order of their ranks.
struct AllToAllBuffers {
  std::shared_ptr<Buffer> memory;
  std::vector<size_t> bytes;  // by rank
};

class TrainerExchange {
 public:
  virtual ~TrainerExchange() = default;

  // Among the host's trainers.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Gives every trainer its buffer, of `bytes` by rank, side by side from `outgoing`, and returns those of all for this one. Every trainer
  // calls it, as often as the others. Blocks, to a deadline of its own. An error, which names who is missing or gave up, ends the exchange
  // for all trainers and for good.
  virtual absl::StatusOr<AllToAllBuffers> Exchange(const char* outgoing, const std::vector<size_t>& bytes) = 0;
  // Ends it here and at the others, with `reason`.
  virtual void Abort(absl::Status reason) = 0;
};

}  // namespace tandem::ps
