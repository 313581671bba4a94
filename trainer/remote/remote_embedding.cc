#include "trainer/remote/remote_embedding.h"

#include <algorithm>

namespace tandem::remote {

std::vector<uint64_t> UniqueIds(absl::Span<const absl::Span<const uint64_t>> lists) {
  std::vector<uint64_t> ids;
  for (absl::Span<const uint64_t> list : lists) ids.insert(ids.end(), list.begin(), list.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Tensor IndexInto(const std::vector<uint64_t>& unique, absl::Span<const uint64_t> ids) {
  Tensor index = Tensor::Empty(Shape{static_cast<int64_t>(ids.size())}, DType::I64);
  int64_t* places = index.data<int64_t>();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto it = std::lower_bound(unique.begin(), unique.end(), ids[i]);
    TANDEM_CHECK(it != unique.end() && *it == ids[i]) << "id " << ids[i] << " was not pulled";
    places[i] = it - unique.begin();
  }
  return index;
}

PulledRows::PulledRows(std::shared_ptr<const std::vector<uint64_t>> ids, int64_t dim)
    : ids_(std::move(ids)), rows_(Tensor::Empty(Shape{static_cast<int64_t>(ids_->size()), dim}, DType::F32)) {}

PulledRows::~PulledRows() { done_.Wait(absl::InfiniteFuture()).IgnoreError(); }

const Tensor& PulledRows::Await(Context& context) {
  context.Fail(done_.Wait(context.deadline()).status());
  return rows_;
}

absl::StatusOr<Tensor> PulledRows::Await(absl::Time deadline) {
  if (absl::Status status = done_.Wait(deadline).status(); !status.ok()) return status;
  return rows_;
}

std::unique_ptr<PulledRows> RemoteEmbedding::Pull(uint64_t step, bool create, std::vector<uint64_t> ids) {
  auto pulled =
      std::make_unique<PulledRows>(std::make_shared<const std::vector<uint64_t>>(std::move(ids)), dim_);
  pulled->done_ = client_->Pull(step, create, {{table_, *pulled->ids_, pulled->rows_.data<float>()}});
  return pulled;
}

Variable RemoteEmbedding::Enter(Context& context, PulledRows& rows, DistAutogradContext& autograd, int last_pass) {
  Variable leaf = Variable::Leaf(rows.Await(context).To(context.stream().device(), context.stream()), "rows");
  leaf.leaf().set_hook([this, node = &leaf.leaf(), ids = rows.ids(), &autograd, last_pass, pass = 0](Context& c) mutable {
    if (pass++ == last_pass && node->has_gradient()) autograd.Push(table_, ids, node->gradient().ToHost(c.stream()));
  });
  return leaf;
}

}  // namespace tandem::remote
