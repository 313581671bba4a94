// A reference to a module in another process, which lives as long as anybody refers to it. Copies share one reference; the last one's end
// tells the owner. To pass one on, send owner() and object() to the other process, which calls Adopt, and keep yours until it has.
// Thread rule: a value; any thread. The host outlives it.
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
  RemoteRef() = default;  // to nothing
  // Makes a module in the process at `owner`, by a name that its registry knows ("Linear") and arguments ("in=16 out=4").
  static absl::StatusOr<RemoteRef> Create(Host& host, const std::string& owner, const std::string& module,
                                          const std::string& arguments, absl::Time deadline);
  // Makes an optimizer (remote_optimizer.h) of parameters of the process at `owner`.
  static absl::StatusOr<RemoteRef> CreateOptimizer(Host& host, const std::string& owner, const CreateOptimizerRequest& request,
                                                   absl::Time deadline);
  // NotFound if the object is gone.
  static absl::StatusOr<RemoteRef> Adopt(Host& host, const std::string& owner, uint64_t object, absl::Time deadline);

  bool defined() const { return hold_ != nullptr; }
  // REQUIRES: defined().
  Host& host() const { return hold_->host; }
  const std::string& owner() const { return hold_->reference.owner; }
  uint64_t object() const { return hold_->reference.object; }
  const std::string& module() const { return hold_->module; }
  const std::vector<std::string>& parameters() const { return hold_->parameters; }

  // The values of its parameters, in their order, as they are now.
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
  // Sends a request that gives a reference, and takes it.
  template <class Reply, class Request>
  static absl::StatusOr<std::pair<RemoteRef, Reply>> Take(Host& host, const std::string& owner, const char* method,
                                                          Request request, std::string what, absl::Time deadline);

  std::shared_ptr<Hold> hold_;
};

}  // namespace tandem::remote
