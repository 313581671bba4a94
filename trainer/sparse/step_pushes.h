// The gradients of one step that are in flight to their servers, under the step's number and this
// trainer's slice. The backward pass continues while they travel; AwaitPushes collects them.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/client/pooled_client.h"
#include "ps/client/row_client.h"
#include "trainer/autograd/context.h"
#include "trainer/tensor/tensor.h"

namespace tandem::sparse {

class StepPushes {
 public:
  // `slice` is this trainer's place in the summation order of each step.
  StepPushes(ps::RowClient* rows, ps::PooledClient* pooled, uint32_t slice)
      : rows_(rows), pooled_(pooled), slice_(slice) {}
  ~StepPushes();

  // Begins step `step`.
  // REQUIRES: the previous step's pushes have been awaited.
  void Begin(uint64_t step);

  uint64_t step() const { return step_; }
  // Sends gradients [ids.size(), dim]. Keeps `ids` and `gradients` alive until the push is
  // acknowledged.
  void Push(uint32_t table, std::shared_ptr<const std::vector<uint64_t>> ids, Tensor gradients);
  // Sends gradients [bags, dim] of bags. `owner` keeps the bags' arrays alive.
  void PushPooled(const ps::Bags& bags, std::shared_ptr<const void> owner, Tensor gradients);
  // Waits until every push is acknowledged, then releases the arrays. The first failure fails the
  // context.
  void AwaitPushes(Context& context);

 private:
  struct Pushed {
    std::shared_ptr<const void> ids;  // the ids, or the owner of bags' arrays
    Tensor gradients;
    rpc::Future<rpc::Done> done;
  };
  ps::RowClient* rows_;
  ps::PooledClient* pooled_;
  const uint32_t slice_;
  uint64_t step_ = 0;
  std::vector<Pushed> pushes_;
};

}  // namespace tandem::sparse
