// A reference to a module in another process, which lives as long as any process refers to it.
// Copies share one reference; the end of the last copy tells the owner. To pass a reference on,
// send owner() and object() to the other process, which calls Adopt. Keep your own reference until
// it has.
// Thread rule: a value; any thread.
// REQUIRES: the host outlives the reference.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/remote/host.h"

namespace tandem {
class CreateOptimizerRequest;  // proto/worker.proto
}

namespace tandem::remote {

class RemoteRef {
 public:
  RemoteRef() = default;  // refers to nothing
  // Makes a module in the process at `owner`, from a name that its registry knows ("Linear") and
  // arguments ("in=16 out=4").
  static absl::StatusOr<RemoteRef> Create(Host& host, const std::string& owner,
                                          const std::string& module, const std::string& arguments,
                                          absl::Time deadline);
  // Makes an optimizer (remote_optimizer.h) of parameters in the process at `owner`.
  static absl::StatusOr<RemoteRef> CreateOptimizer(Host& host, const std::string& owner,
                                                   const CreateOptimizerRequest& request,
                                                   absl::Time deadline);
  // NotFound if the object has been freed.
  static absl::StatusOr<RemoteRef> Adopt(Host& host, const std::string& owner, uint64_t object,
                                         absl::Time deadline);

  bool defined() const { return hold_ != nullptr; }
  // REQUIRES: defined().
  Host& host() const { return hold_->host; }
  const std::string& owner() const { return hold_->reference.owner; }
  uint64_t object() const { return hold_->reference.object; }
  const std::string& module() const { return hold_->module; }
  const std::vector<std::string>& parameters() const { return hold_->parameters; }

  // The present values of the module's parameters, in their order.
  absl::StatusOr<std::vector<Tensor>> Fetch(absl::Time deadline) const;

 private:
  struct Hold {
    Host& host;
    Reference reference;
    std::string module;
    std::vector<std::string> parameters;
    Hold(Host& host, Reference reference) : host(host), reference(std::move(reference)) {}
    ~Hold() { host.Release(reference); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
  };
  // Sends a request that gives a reference, and takes the reference.
  template <class Reply, class Request>
  static absl::StatusOr<std::pair<RemoteRef, Reply>> Take(Host& host, const std::string& owner,
                                                          const char* method, Request request,
                                                          std::string what, absl::Time deadline);

  std::shared_ptr<Hold> hold_;
};

}  // namespace tandem::remote
