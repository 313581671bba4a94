#include "trainer/sparse/remote_embedding.h"

#include <utility>

#include "kernels/base/radix_sort.h"

namespace tandem::sparse {

MergedIds MergeIds(absl::Span<const absl::Span<const uint64_t>> lists) {
  struct Use {
    uint64_t id;
    size_t at;  // in the concatenation of all lists
  };
  std::vector<Use> uses, scratch;
  for (const absl::Span<const uint64_t> list : lists) {
    for (const uint64_t id : list) uses.push_back({id, uses.size()});
  }
  RadixSort(&uses, &scratch, [](const Use& use) { return use.id; });
  const Tensor all = Tensor::Empty(Shape{static_cast<int64_t>(uses.size())}, DType::I64);
  int64_t* const places = all.data<int64_t>();
  MergedIds merged;
  merged.ids.reserve(uses.size());
  for (const Use& use : uses) {
    if (merged.ids.empty() || merged.ids.back() != use.id) merged.ids.push_back(use.id);
    places[use.at] = static_cast<int64_t>(merged.ids.size()) - 1;
  }
  int64_t begin = 0;
  for (const absl::Span<const uint64_t> list : lists) {
    const int64_t end = begin + static_cast<int64_t>(list.size());
    merged.places.push_back(all.Rows(std::exchange(begin, end), end));
  }
  return merged;
}

PulledRows::PulledRows(std::shared_ptr<const std::vector<uint64_t>> ids, int64_t dim,
                       Uploads* uploads)
    : ids_(std::move(ids)),
      shape_{static_cast<int64_t>(ids_->size()), dim},
      upload_(uploads == nullptr
                  ? nullptr
                  : uploads->Begin(static_cast<size_t>(shape_.num_elements()) * sizeof(float))),
      rows_(uploads == nullptr ? Tensor::Empty(shape_, DType::F32) : Tensor()) {}

PulledRows::~PulledRows() { done_.Wait(absl::InfiniteFuture()).IgnoreError(); }

float* PulledRows::memory() const {
  return upload_ == nullptr ? rows_.data<float>() : static_cast<float*>(upload_->host());
}

void PulledRows::Arrive(rpc::Future<rpc::Done> pulled) {
  if (upload_ == nullptr) {
    done_ = std::move(pulled);
    return;
  }
  const auto sent = std::make_shared<rpc::Promise<rpc::Done>>();
  done_ = sent->future();
  pulled.OnReady([this, sent](const absl::StatusOr<rpc::Done>& done) {
    if (done.ok()) upload_->Send();
    sent->Set(done);  // the last statement: a waiting thread may now destroy the rows
  });
}

absl::StatusOr<Tensor> PulledRows::Await(absl::Time deadline) {
  if (absl::Status status = done_.Wait(deadline).status(); !status.ok()) return status;
  if (!rows_.defined()) rows_ = Tensor::InBuffer(upload_->Receive(), 0, shape_, DType::F32);
  return rows_;
}

RemoteEmbedding::RemoteEmbedding(ps::RowClient* client, uint32_t table, int64_t dim, Stream* stream)
    : client_(client),
      table_(table),
      dim_(dim),
      uploads_(stream->on_cuda() ? std::make_unique<Uploads>(stream) : nullptr) {}

std::unique_ptr<PulledRows> RemoteEmbedding::Pull(uint64_t step, bool create,
                                                  std::vector<uint64_t> ids) {
  auto all = std::make_shared<const std::vector<uint64_t>>(std::move(ids));
  std::unique_ptr<PulledRows> pulled(new PulledRows(std::move(all), dim_, uploads_.get()));
  pulled->Arrive(client_->Pull(step, create, {{table_, *pulled->ids_, pulled->memory()}}));
  return pulled;
}

Variable RemoteEmbedding::Enter(Context& context, PulledRows& rows, StepPushes& autograd,
                                int last_pass) {
  const absl::StatusOr<Tensor> values = rows.Await(context.deadline());
  context.Fail(values.status());
  Variable leaf =
      Variable::Leaf(values.ok() ? *values : context.Empty(rows.shape_, DType::F32), "rows");
  leaf.leaf().set_hook([this, node = &leaf.leaf(), ids = rows.ids(), &autograd, last_pass,
                        pass = 0](Context& c) mutable {
    if (pass++ == last_pass && node->has_gradient())
      autograd.Push(table_, ids, node->gradient().ToHost(c.stream()));
  });
  return leaf;
}

}  // namespace tandem::sparse
