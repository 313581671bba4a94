// The gradients of one step that are in flight to their servers, under the step's number and this
// trainer's slice. The backward pass continues while they travel; AwaitPushes collects them.
// Thread rule: the step's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ps/client/pooled_client.h"
#include "ps/client/row_client.h"
#include "trainer/autograd/context.h"
#include "trainer/tensor/tensor.h"

namespace tandem::sparse {

// Gradients [ids.size(), dim] of rows of one table.
struct RowGradients {
  uint32_t table = 0;
  std::shared_ptr<const std::vector<uint64_t>> ids;
  Tensor gradients;
};

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
  // Sends gradients of rows, of all tables in one message. Keeps ids and gradients alive until the
  // push is acknowledged.
  void Push(std::vector<RowGradients> rows);
  // Sends gradients [bags, dim] of bags. `owner` keeps the bags' arrays alive.
  void PushPooled(const ps::Bags& bags, std::shared_ptr<const void> owner, Tensor gradients);
  // AwaitPushes first runs `last`, which may push what is left.
  void BeforeAwait(std::function<void(Context&)> last) { last_.push_back(std::move(last)); }
  // Waits until every push is acknowledged, then releases the arrays. The first failure fails the
  // context.
  void AwaitPushes(Context& context);

 private:
  struct Pushed {
    std::vector<RowGradients> rows;
    std::shared_ptr<const void> bags;  // the owner of bags' arrays
    Tensor of_bags;
    rpc::Future<rpc::Done> done;
  };
  ps::RowClient* rows_;
  ps::PooledClient* pooled_;
  const uint32_t slice_;
  uint64_t step_ = 0;
  std::vector<Pushed> pushes_;
  std::vector<std::function<void(Context&)>> last_;
};

}  // namespace tandem::sparse
