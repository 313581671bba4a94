// Process groups of GPUs over NCCL, one rank per device. Collectives of a group run one after
// another on the group's own device queue. They start after earlier work of the queue that
// computes. Communicators do not block: start, submission and end are polled with deadlines. A
// watch also polls between operations for communicator errors and for peers that gave up
// (failure_board.h). After a failure the group aborts the communicator, which ends its kernels.
// NCCL computes sums: all ranks, and all runs of one layout, get the same bits. For SumOrder::TREE
// ranks exchange their parts as messages, and a kernel of ours adds them in steps. If ranks run
// different operations and the operation does not end, the error names both. If it does end, the
// result is undefined and undetected. All ranks destroy their groups in the same order.
// REQUIRES: two ranks that exchange do not both send first, because Send waits for Recv.
// Thread rule: that of ProcessGroup.
#pragma once

#include <memory>
#include <string>

#include "rpc/store/store.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {

// Returns NCCL's version (22703 for 2.27.3), or why NCCL cannot be used: not in this binary, or not
// installed.
absl::StatusOr<int> FindNccl();

struct NcclGroupOptions {
  rpc::Store* store = nullptr;  // the rendezvous; outlives the group
  std::string name;             // the group's, unique in the store
  int rank = 0;
  int size = 1;
  Device device;                               // CUDA
  absl::Duration timeout = absl::Seconds(60);  // for each operation
};

// Meets the other ranks. Collective over all `size` processes. DeadlineExceeded names the missing
// ranks.
absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeNcclGroup(const NcclGroupOptions& options,
                                                            absl::Time deadline);

}  // namespace tandem::comm
