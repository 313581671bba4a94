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

PulledRows::PulledRows(std::shared_ptr<const std::vector<uint64_t>> ids, int64_t dim, Uploads* uploads)
    : ids_(std::move(ids)),
      shape_{static_cast<int64_t>(ids_->size()), dim},
      upload_(uploads == nullptr ? nullptr : uploads->Begin(static_cast<size_t>(shape_.num_elements()) * sizeof(float))),
      rows_(uploads == nullptr ? Tensor::Empty(shape_, DType::F32) : Tensor()) {}

PulledRows::~PulledRows() { done_.Wait(absl::InfiniteFuture()).IgnoreError(); }

float* PulledRows::memory() const { return upload_ == nullptr ? rows_.data<float>() : static_cast<float*>(upload_->host()); }

void PulledRows::Arrive(rpc::Future<rpc::Done> pulled) {
  if (upload_ == nullptr) {
    done_ = std::move(pulled);
    return;
  }
  const auto sent = std::make_shared<rpc::Promise<rpc::Done>>();
  done_ = sent->future();
  pulled.OnReady([this, sent](const absl::StatusOr<rpc::Done>& done) {
    if (done.ok()) upload_->Send();
    sent->Set(done);  // the last of it: whoever waits may end the rows
  });
}

absl::StatusOr<Tensor> PulledRows::Await(absl::Time deadline) {
  if (absl::Status status = done_.Wait(deadline).status(); !status.ok()) return status;
  if (!rows_.defined()) rows_ = Tensor::InBuffer(upload_->Receive(), 0, shape_, DType::F32);
  return rows_;
}

RemoteEmbedding::RemoteEmbedding(ps::Client* client, uint32_t table, int64_t dim, Stream* stream)
    : client_(client), table_(table), dim_(dim), uploads_(stream->on_cuda() ? std::make_unique<Uploads>(stream) : nullptr) {}

std::unique_ptr<PulledRows> RemoteEmbedding::Pull(uint64_t step, bool create, std::vector<uint64_t> ids) {
  auto all = std::make_shared<const std::vector<uint64_t>>(std::move(ids));
  std::unique_ptr<PulledRows> pulled(new PulledRows(std::move(all), dim_, uploads_.get()));
  pulled->Arrive(client_->Pull(step, create, {{table_, *pulled->ids_, pulled->memory()}}));
  return pulled;
}

Variable RemoteEmbedding::Enter(Context& context, PulledRows& rows, DistAutogradContext& autograd, int last_pass) {
  const absl::StatusOr<Tensor> values = rows.Await(context.deadline());
  context.Fail(values.status());
  Variable leaf = Variable::Leaf(values.ok() ? *values : context.Empty(rows.shape_, DType::F32), "rows");
  leaf.leaf().set_hook([this, node = &leaf.leaf(), ids = rows.ids(), &autograd, last_pass, pass = 0](Context& c) mutable {
    if (pass++ == last_pass && node->has_gradient()) autograd.Push(table_, ids, node->gradient().ToHost(c.stream()));
  });
  return leaf;
}

}  // namespace tandem::remote
