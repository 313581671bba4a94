// What the ranks of a group tell each other through the job's store when one of them fails, where the transport says nothing or only
// that somebody is gone (NCCL). A rank whose operation does not end asks all for their position: who does not answer is gone, who is
// behind is late, who runs something else disagrees. The first reason of a failure is told to everybody.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rpc/store/store.h"
#include "trainer/comm/collective.h"

namespace tandem::comm {

class FailureBoard {
 public:
  // `name` is unique in the store, which outlives the board.
  FailureBoard(rpc::Store* store, std::string name, int rank, int size);

  // The operation that this rank has begun last.
  void Begin(const Collective& collective);

  // Answers an inquiry, if there is a new one, and returns the reason that a peer has given for giving up, Ok if none has: "aborted by
  // rank 2: ...". One or two round trips to the store, to be called a few times a second.
  absl::Status Watch();
  // Gives this rank's reason, unless a peer was first.
  void GiveUp(const absl::Status& reason);

  struct Missing {
    std::string ranks;      // "rank 1, rank 3": gone, or behind this rank; may be empty
    absl::Status mismatch;  // Internal with both descriptions if a peer runs another operation in this one's place
  };
  // Asks all for their positions and waits for the answers until `deadline`.
  Missing Inquire(const Collective& mine, absl::Time deadline);
  // The same between operations: "rank 1", those that do not answer; may be empty.
  std::string InquireWhoIsGone(absl::Time deadline);

 private:
  struct Position {
    bool begun = false;
    Description description;
    std::vector<int64_t> send_counts, recv_counts;  // of an AllToAllV: one for each rank
  };
  // The number of a new inquiry; 0 if the store does not answer.
  int64_t Ask();
  std::optional<Position> Answer(int64_t inquiry, int rank, absl::Time deadline);
  std::string Key(const char* what) const;
  std::string PositionKey(int64_t inquiry, int rank) const;
  static std::string ToText(const Position& position);
  static std::optional<Position> FromText(const std::string& text);

  rpc::Store* const store_;
  const std::string name_;
  const int rank_, size_;
  absl::Mutex mutex_;
  Position position_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> seen_{0};  // news that were looked at
};

}  // namespace tandem::comm
