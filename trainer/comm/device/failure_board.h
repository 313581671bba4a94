// How the ranks of a group tell each other of a failure, through the job's store. NCCL itself says
// nothing, or only that some rank is gone. A rank whose operation does not end asks all ranks for
// their positions. A rank that does not answer is gone, one that is behind is late, and one that
// runs another operation disagrees. Every rank learns the first reason of a failure.
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
  // REQUIRES: `name` is unique in the store; the store outlives the board.
  FailureBoard(rpc::Store* store, std::string name, int rank, int size);

  // Records the operation that this rank began last.
  void Begin(const Collective& collective);

  // Answers a new inquiry, if there is one. Returns Ok, or the reason of a peer that gave up:
  // "aborted by rank 2: ...". A reason that a slow store does not bring at once is brought by a
  // later call. Takes one round trip to the store, with news some more; call it a few times a
  // second.
  absl::Status Watch();
  // Publishes this rank's reason, unless a peer was first.
  void GiveUp(const absl::Status& reason);

  struct Missing {
    std::string ranks;  // "rank 1, rank 3": gone, or behind this rank; may be empty
    // Internal with both descriptions if a peer runs another operation at this position.
    absl::Status mismatch;
  };
  // Asks all ranks for their positions and waits for the answers until `deadline`.
  Missing Inquire(const Collective& mine, absl::Time deadline);
  // Like Inquire, between operations. Returns the ranks that do not answer ("rank 1"), which may be
  // empty.
  std::string InquireWhoIsGone(absl::Time deadline);

 private:
  struct Position {
    bool begun = false;
    Description description;
    std::vector<int64_t> send_counts, recv_counts;  // AllToAllV only: one for each rank
  };
  // Answers the inquiries up to number `news` that Watch has not looked at.
  void AnswerInquiries(int64_t news);
  // Posts a new inquiry and returns its number; 0 if the store does not answer.
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
  std::atomic<int64_t> seen_{0};         // number of the latest inquiry that Watch has looked at
  std::atomic<bool> reason_due_{false};  // since the latest news, no reason was read or ruled out
};

}  // namespace tandem::comm
