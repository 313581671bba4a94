// A client that forwards every call unchanged to another client. Tests override some calls.
#pragma once

#include <utility>
#include <vector>

#include "ps/caching/forwarding_admin.h"
#include "ps/client/clients.h"

namespace tandem::ps {

class ForwardingClient : public RowClient, public ForwardingAdmin, public PooledClient {
 public:
  explicit ForwardingClient(const Clients& inner) : ForwardingAdmin(*inner.tables), inner_(inner) {}

  rpc::Future<rpc::Done> Pull(uint64_t step, bool create,
                              std::vector<PullSegment> segments) override {
    return inner_.rows->Pull(step, create, std::move(segments));
  }
  rpc::Future<rpc::Done> Push(uint64_t step, uint32_t slice,
                              std::vector<PushSegment> segments) override {
    return inner_.rows->Push(step, slice, std::move(segments));
  }
  rpc::Future<absl::uint128> GradientNorm(uint64_t step) override {
    return inner_.rows->GradientNorm(step);
  }
  rpc::Future<rpc::Done> Commit(const CommitArgs& args) override {
    return inner_.rows->Commit(args);
  }
  void Abort(absl::Status reason) override { inner_.rows->Abort(std::move(reason)); }
  rpc::Future<rpc::Done> PullPooled(uint64_t step, bool create, const Bags& bags, size_t dim,
                                    float* pooled) override {
    return PullAndPool(*this, step, create, bags, dim, pooled);
  }
  rpc::Future<rpc::Done> PushPooled(uint64_t step, uint32_t slice, const Bags& bags, size_t dim,
                                    const float* gradients) override {
    return PushToBags(*this, step, slice, bags, dim, gradients);
  }

 private:
  const Clients inner_;
};

}  // namespace tandem::ps
