// Process groups whose ranks are threads of one process: `--local --trainers N`, and the oracle for
// every other group. The simplest correct implementation: ranks publish their views and meet. Then
// each rank reduces its chunk directly from its peers' arrays in the order of ring_order.h. A Send
// copies the message into the receiver's mailbox and is done. For tests, a Send may instead wait
// until the receiver has taken the message from the sender's array.
// Thread rule: each group belongs to one launching thread; groups of one Create may live on
// different threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {

class ThreadGroup final : public QueuedGroup {
 public:
  enum class Sending { BUFFERED, WAITS_FOR_RECV };

  // Makes one group per rank, in rank order. Groups split from them send like them.
  static std::vector<std::unique_ptr<ProcessGroup>> Create(
      int size, const std::string& name, absl::Duration timeout = absl::Seconds(60),
      Sending sending = Sending::BUFFERED);
  ~ThreadGroup() override;

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override;

 private:
  class Room;  // the ranks' meeting point

  ThreadGroup(std::shared_ptr<Room> room, std::string name, int rank, int size,
              absl::Duration timeout);
  absl::StatusOr<std::unique_ptr<QueuedGroup>> SplitOff(int color, int key, const std::string& name,
                                                        absl::Time deadline) override;
  absl::Status Run(const Collective& collective, absl::Time deadline) override;
  void AbortPeers(const absl::Status& reason) override;

  absl::Status RunTogether(const Collective& mine, absl::Time deadline);
  // Runs this rank's part once all ranks have arrived; `all` holds every rank's operation.
  absl::Status RunPart(const Collective& mine, const std::vector<const Collective*>& all) const;
  void AllReducePart(const Collective& mine, const std::vector<const Collective*>& all) const;
  absl::Status AllToAllVPart(const Collective& mine,
                             const std::vector<const Collective*>& all) const;
  absl::Status RunMessages(const Collective& mine, absl::Time deadline);
  absl::Status ReceiveMessage(const Collective& mine, absl::Time deadline);

  const std::shared_ptr<Room> room_;
  int num_splits_ = 0;
};

}  // namespace tandem::comm
