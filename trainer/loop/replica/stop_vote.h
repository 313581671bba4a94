// How the replicas agree to stop early. A signal reaches one replica first, but all must end after
// the same step. Each replica therefore votes, and one vote stops all.
// Thread rule: the step's thread.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/memory/stream.h"
#include "trainer/comm/process_group.h"

namespace tandem::loop {

class StopVote {
 public:
  // `requested` returns true if this replica is to stop; null: never.
  StopVote(std::function<bool()> requested, comm::ProcessGroup* group, Stream* stream)
      : requested_(std::move(requested)), group_(group), stream_(stream) {}

  // Returns this replica's vote, 0 or 1. The caller sums the votes of all replicas, with whatever
  // else it shares, and passes the sum to Count.
  double Cast() const { return requested_ && requested_() ? 1 : 0; }
  void Count(double votes) { stopping_ = votes > 0; }
  // Casts and counts on its own. Returns stopping(). Collective.
  absl::StatusOr<bool> Agree(absl::Time deadline);

  // The outcome of the last vote, the same on all replicas.
  bool stopping() const { return stopping_; }

 private:
  const std::function<bool()> requested_;
  comm::ProcessGroup* const group_;
  Stream* const stream_;
  bool stopping_ = false;
};

}  // namespace tandem::loop
