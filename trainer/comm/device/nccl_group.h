// Process groups of GPUs over NCCL: one rank per device, collectives on a queue of their own beside the one that computes, started
// behind it and, in a group, one after another. Communicators do not block: start, submission and end are polled, with deadlines.
// A watch looks for errors of the communicator and for peers that gave up (failure_board.h), also between operations; after a failure
// the communicator is aborted, which ends its kernels. Sums are NCCL's: the same bits on all ranks and in every run of the same
// layout; but for SumOrder::TREE, whose ranks exchange their parts by messages and add them up by a kernel of ours, in steps. Ranks that
// run different operations learn it, both named, if the operation does not end; if it does, NCCL has made something of it and nobody knows.
// Send and Recv meet: two ranks that exchange must not both send first. All ranks destroy their groups in the same order.
// Thread rule: as ProcessGroup.
#pragma once

#include <memory>
#include <string>

#include "rpc/store/store.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {

// NCCL's version, 22703 for 2.27.3, or why NCCL cannot be used: not in this binary, or not installed.
absl::StatusOr<int> FindNccl();

struct NcclGroupOptions {
  rpc::Store* store = nullptr;  // the rendezvous; outlives the group
  std::string name;             // the group's, unique in the store
  int rank = 0;
  int size = 1;
  Device device;  // CUDA
  absl::Duration timeout = absl::Seconds(60);  // of each operation
};

// Meets the other ranks: collective over all `size` processes. DeadlineExceeded names who did not come.
absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeNcclGroup(const NcclGroupOptions& options, absl::Time deadline);

}  // namespace tandem::comm
