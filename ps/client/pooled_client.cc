#include "ps/client/pooled_client.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/memory/buffer.h"
#include "ps/wire/bag_rows.h"

namespace tandem::ps {

namespace {

// Memory that a call with bags needs until the call completes, besides the caller's arrays.
struct Pooled {
  DistinctIds distinct;
  std::vector<uint32_t> counts;
  const std::shared_ptr<Buffer> memory;  // rows, or their gradients
  float* const rows = static_cast<float*>(memory->data());

  Pooled(const Bags& bags, size_t dim)
      : distinct(FindDistinct(bags.ids.data(), bags.ids.size())),
        memory(Buffer::Allocate(distinct.ids.size() * dim * sizeof(float))) {
    for (size_t bag = 0; bag < bags.size(); ++bag) {
      counts.push_back(static_cast<uint32_t>(bags.offsets[bag + 1] - bags.offsets[bag]));
    }
  }
};

}  // namespace

rpc::Future<rpc::Done> PullAndPool(RowClient& rows, uint64_t step, bool create, const Bags& bags,
                                   size_t dim, float* pooled) {
  if (absl::Status status = CheckBags(bags); !status.ok())
    return rpc::Future<rpc::Done>::Ready(status);
  const auto call = std::make_shared<Pooled>(bags, dim);
  const auto promise = std::make_shared<rpc::Promise<rpc::Done>>();
  const auto future = promise->future();
  rows.Pull(step, create, {{bags.table, call->distinct.ids, call->rows}})
      .OnReady([call, promise, bags, dim, pooled](const absl::StatusOr<rpc::Done>& pulled) {
        if (pulled.ok()) {
          std::fill(pooled, pooled + bags.size() * dim, 0.0f);
          AddRows({call->distinct.place, call->counts, bags.weights, dim}, call->rows, pooled);
          ScalePooled(bags, dim, pooled, pooled);
        }
        promise->Set(pulled);
      });
  return future;
}

rpc::Future<rpc::Done> PushToBags(RowClient& rows, uint64_t step, uint32_t slice, const Bags& bags,
                                  size_t dim, const float* gradients) {
  if (absl::Status status = CheckBags(bags); !status.ok())
    return rpc::Future<rpc::Done>::Ready(status);
  const auto call = std::make_shared<Pooled>(bags, dim);
  std::vector<float> of_sums(bags.size() * dim);
  ScalePooled(bags, dim, gradients, of_sums.data());
  SumGradients({call->distinct.place, call->counts, bags.weights, dim}, of_sums.data(), call->rows);
  const auto future = rows.Push(step, slice, {{bags.table, call->distinct.ids, call->rows}});
  future.OnReady([call](const absl::StatusOr<rpc::Done>&) {});
  return future;
}

}  // namespace tandem::ps
