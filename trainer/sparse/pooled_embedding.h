// A sparse layer whose rows parameter servers pool. Forward fetches one row for each bag of ids and
// backward sends each bag's gradient. Rows and their gradients never travel. Compared with
// RemoteEmbedding, it moves fewer bytes if bags are large.
// Thread rule: the step's thread. Arrays lie in host memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ps/client/pooled_client.h"
#include "trainer/autograd/variable.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::sparse {

// Bag b holds ids[offsets[b]] to ids[offsets[b + 1] - 1].
struct BagIds {
  std::vector<uint64_t> ids, offsets;
  std::vector<float> weights;  // empty: all 1
};

// Pooled rows in flight. The destructor waits for the pull, which writes into their memory.
class PulledBags {
 public:
  ~PulledBags() { done_.Wait(absl::InfiniteFuture()).IgnoreError(); }

 private:
  friend class PooledEmbedding;
  PulledBags(uint32_t table, ps::Pooling pooling, BagIds bags, int64_t dim);

  const std::shared_ptr<const BagIds> ids_;
  const ps::Bags bags_;  // views ids_
  const Tensor pooled_;
  rpc::Future<rpc::Done> done_;
};

class PooledEmbedding {
 public:
  // REQUIRES: the client outlives the embedding and everything it pulls.
  PooledEmbedding(ps::PooledClient* client, uint32_t table, int64_t dim, ps::Pooling pooling)
      : client_(client), table_(table), dim_(dim), pooling_(pooling) {}

  // Like RemoteEmbedding::Pull. The pull fails if offsets do not ascend from 0 to the number of
  // ids.
  std::unique_ptr<PulledBags> Pull(uint64_t step, bool create, BagIds bags);
  // Waits for the pooled rows, f32 [bags, dim], and returns them as a leaf. The leaf's gradient is
  // pushed at the end of the backward pass.
  Variable Enter(Context& context, PulledBags& pulled, StepPushes& autograd);

 private:
  ps::PooledClient* client_;
  const uint32_t table_;
  const int64_t dim_;
  const ps::Pooling pooling_;
};

}  // namespace tandem::sparse
