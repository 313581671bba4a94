// The two ways in which trainers synchronise weights. One synchronisation begins when the gradients
// of a step are ready on all trainers. It ends when the new weights are usable on all of them: all
// weights if they are dense, the rows of the next step's ids if they are a table's. The optimizer's
// step (Adagrad) is part of it.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ps/client/remote_client.h"
#include "rpc/traffic.h"
#include "trainer/comm/queued_group.h"

namespace tandem {
class SyncPoint;  // proto/bench.pb.h
}

namespace tandem::bench {

class SyncWay {
 public:
  virtual ~SyncWay() = default;
  // Makes the gradients of a step. Not part of the synchronisation.
  virtual void MakeGradients(uint64_t step) = 0;
  // Ends with the weights of step + 1.
  virtual absl::Status Synchronise(uint64_t step) = 0;
  // Returns rows [ids, dim] as they are now.
  virtual absl::StatusOr<std::vector<float>> Read(const std::vector<uint64_t>& ids) = 0;
  // Since the beginning: over the group, or to and from all servers.
  virtual rpc::Traffic traffic() const = 0;
};

// Every trainer holds all weights and their optimizer's state. An all-reduce carries the gradients
// of all rows, as that of a table with placement REPLICATED does. Collective over `group`, which
// outlives the way.
absl::StatusOr<std::unique_ptr<SyncWay>> MakeRingWay(const SyncPoint& point,
                                                     comm::QueuedGroup* group);

// Parameter servers hold weights and state. A trainer pushes its gradients, commits the step and
// pulls. `trainer`: this one's rank. `client` outlives the way.
absl::StatusOr<std::unique_ptr<SyncWay>> MakeServerWay(const SyncPoint& point, uint32_t trainer,
                                                       ps::RemoteClient* client);

}  // namespace tandem::bench
