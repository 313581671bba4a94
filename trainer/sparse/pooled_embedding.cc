#include "trainer/sparse/pooled_embedding.h"

#include <utility>

namespace tandem::sparse {

PulledBags::PulledBags(uint32_t table, ps::Pooling pooling, BagIds bags, int64_t dim)
    : ids_(std::make_shared<const BagIds>(std::move(bags))),
      bags_{table, pooling, ids_->ids, ids_->offsets,
            ids_->weights.empty() ? nullptr : ids_->weights.data()},
      pooled_(Tensor::Empty(Shape{static_cast<int64_t>(bags_.size()), dim}, DType::F32)) {
  TANDEM_CHECK(ids_->weights.empty() || ids_->weights.size() == ids_->ids.size())
      << ids_->weights.size() << " weights";
}

std::unique_ptr<PulledBags> PooledEmbedding::Pull(uint64_t step, bool create, BagIds bags) {
  TANDEM_CHECK(!bags.offsets.empty());
  std::unique_ptr<PulledBags> pulled(new PulledBags(table_, pooling_, std::move(bags), dim_));
  pulled->done_ = client_->PullPooled(step, create, pulled->bags_, static_cast<size_t>(dim_),
                                      pulled->pooled_.data<float>());
  return pulled;
}

Variable PooledEmbedding::Enter(Context& context, PulledBags& pulled, StepPushes& autograd) {
  context.Fail(pulled.done_.Wait(context.deadline()).status());
  Variable leaf = Variable::Leaf(pulled.pooled_, "pooled");
  leaf.leaf().set_hook(
      [node = &leaf.leaf(), ids = pulled.ids_, bags = pulled.bags_, &autograd](Context&) {
        if (node->has_gradient()) autograd.PushPooled(bags, ids, node->gradient());
      });
  return leaf;
}

}  // namespace tandem::sparse
