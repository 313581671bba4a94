// How the ranks of one host map the same new shared memory. Rank 0 creates the memory and announces
// it in the store. A local socket hands it to each rank that shows the job's token. The memory has
// no name that a killed process could leave behind.
// Thread rule: stateless; any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/shared/memory.h"
#include "rpc/store/store.h"

namespace tandem::comm {

struct SharedRendezvous {
  rpc::Store* store;
  std::string token;  // the job's
  std::string key;    // this memory's, unique in the store
  int rank;
  int size;
};

// Collective over the ranks of `where`. DeadlineExceeded names a missing rank. ResourceExhausted,
// on all ranks, if rank 0 finds no memory.
absl::StatusOr<std::unique_ptr<rpc::SharedMemory>> MapTogether(const SharedRendezvous& where,
                                                               size_t num_bytes,
                                                               rpc::SharedMemory::Pages pages,
                                                               absl::Time deadline);

}  // namespace tandem::comm
