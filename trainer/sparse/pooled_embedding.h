// A sparse layer that parameter servers pool: forward fetches a row for each bag of ids, backward sends each bag's gradient, and rows and
// their gradients never travel. It stands beside RemoteEmbedding: where bags are many times larger than one, this moves less.
// Thread rule: the step's thread. Arrays lie in the host's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ps/client/client.h"
#include "trainer/autograd/variable.h"
#include "trainer/sparse/step_pushes.h"

namespace tandem::sparse {

// Bag b has ids[offsets[b]] to ids[offsets[b + 1] - 1].
struct BagIds {
  std::vector<uint64_t> ids, offsets;
  std::vector<float> weights;  // empty: all 1
};

// Pooled rows on their way. Destruction waits for the pull, which writes into its memory.
class PulledBags {
 public:
  ~PulledBags() { done_.Wait(absl::InfiniteFuture()).IgnoreError(); }

 private:
  friend class PooledEmbedding;
  PulledBags(uint32_t table, ps::Pooling pooling, BagIds bags, int64_t dim);

  const std::shared_ptr<const BagIds> ids_;
  const ps::Bags bags_;  // of ids_
  const Tensor pooled_;
  rpc::Future<rpc::Done> done_;
};

class PooledEmbedding {
 public:
  // The client outlives the embedding and all that it pulls.
  PooledEmbedding(ps::Client* client, uint32_t table, int64_t dim, ps::Pooling pooling)
      : client_(client), table_(table), dim_(dim), pooling_(pooling) {}

  // As RemoteEmbedding::Pull. Offsets that are not ascending from 0 to the number of ids fail the pull.
  std::unique_ptr<PulledBags> Pull(uint64_t step, bool create, BagIds bags);
  // Waits for the pooled rows, f32 [bags, dim], and returns them as a leaf whose gradient is pushed at the end of the backward pass.
  Variable Enter(Context& context, PulledBags& pulled, StepPushes& autograd);

 private:
  ps::Client* client_;
  const uint32_t table_;
  const int64_t dim_;
  const ps::Pooling pooling_;
};

}  // namespace tandem::sparse
