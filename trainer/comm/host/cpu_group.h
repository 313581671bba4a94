// Process groups whose ranks are processes of one host, over shared memory without a name in
// /dev/shm. Small all-reduces are one-shot: every rank shows its array and sums all arrays. Large
// ones are a pipelined ring. Arrays from Allocate are reduced in place. All add in the orders of
// ring_order.h, so their bits are those of ThreadGroup.
// A group holds at most 3 MB of shared memory per rank and 256 KB per ordered pair, of which it
// uses what its largest arrays need.
// A Send is done once its bytes are in the channel to the receiver (256 KB); a larger Send waits
// for a Recv.
// REQUIRES: two ranks that exchange more than 256 KB use SendRecv, or do not both send first.
// Thread rule: that of ProcessGroup.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "rpc/store/store.h"
#include "trainer/comm/host/shared_board.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {

struct CpuGroupOptions {
  rpc::Store* store = nullptr;  // the rendezvous; outlives the group
  // The job's token, unique on the host, at most 100 characters. A process that shows the token
  // gets the memory.
  std::string token;
  std::string name;  // the group's, unique in the store
  int rank = 0;
  int size = 1;
  absl::Duration timeout = absl::Seconds(60);  // for each operation
  std::vector<std::string> names = {};         // of the ranks, in messages (RankName)
};

class CpuGroup final : public QueuedGroup {
 public:
  // Meets the other ranks. Collective over all `size` processes. `name` is how messages call the
  // group; empty: options.name.
  static absl::StatusOr<std::unique_ptr<QueuedGroup>> Create(const CpuGroupOptions& options,
                                                             absl::Time deadline,
                                                             const std::string& name = "");
  ~CpuGroup() override;

  // Gives private memory where shared memory is short.
  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override;
  uint64_t private_bytes() const override { return private_bytes_; }

 private:
  struct Segment;  // one Allocate: every rank's buffer, mapped by all
  using Waiter = SharedBoard::Waiter;

  CpuGroup(const CpuGroupOptions& options, std::string name, std::unique_ptr<SharedBoard> board);
  absl::StatusOr<std::unique_ptr<QueuedGroup>> SplitOff(int color, int key, const std::string& name,
                                                        absl::Time deadline) override;
  absl::Status Run(const Collective& collective, absl::Time deadline) override;
  void AbortPeers(const absl::Status& reason) override;

  // Counts bytes that move both ways: this rank reads or writes them at the others, and the others
  // as many here.
  void CountBothWays(int64_t num_bytes) {
    CountTraffic({static_cast<uint64_t>(num_bytes), static_cast<uint64_t>(num_bytes)});
  }
  // Enters a phase and checks that all ranks run this operation.
  absl::Status EnterTogether(const SharedBoard::Post& post, const Waiter& waiter);

  absl::Status RunAllReduce(const Collective& mine, const Waiter& waiter);
  absl::Status OneShotAllReduce(const Collective& mine, const Waiter& waiter);
  absl::Status RingAllReduce(const Collective& mine, const Waiter& waiter);
  absl::Status RingStep(const Collective& mine, int64_t block, int step, const Waiter& waiter);
  absl::Status PhasedAllReduce(const Collective& mine, const Waiter& waiter);
  absl::Status ZeroCopyAllReduce(const Collective& mine, const Waiter& waiter);
  absl::Status RunAllGather(const Collective& mine, const Waiter& waiter);
  absl::Status RunReduceScatter(const Collective& mine, const Waiter& waiter);
  absl::Status RunBroadcast(const Collective& mine, const Waiter& waiter);
  absl::Status RunAllToAllV(const Collective& mine, const Waiter& waiter);
  absl::Status RunMessages(const Collective& mine, const Waiter& waiter);

  // Finds the view among the allocated segments; segment -1 if it lies in none.
  SharedBoard::Post PostFor(const Collective& mine) const;

  const CpuGroupOptions options_;
  const std::unique_ptr<SharedBoard> board_;  // null in a group of one
  int num_splits_ = 0;                        // launching thread
  uint64_t private_bytes_ = 0;                // launching thread
  mutable absl::Mutex segments_mutex_;
  std::vector<std::weak_ptr<Segment>> segments_ ABSL_GUARDED_BY(segments_mutex_);
};

}  // namespace tandem::comm
