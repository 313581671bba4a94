// A process's place in distributed autograd. A host keeps objects for other processes
// (worker.proto), keeps the process's shares of contexts, and calls its peers. Trainers have a host
// too: gradients of the values they send come back to it.
//
// Objects belong to the processes that refer to them. A process that holds a reference, or takes
// part in a context, sends heartbeats. A process that is silent for a lease is dead: its references
// are dropped, its contexts end, and the last reference frees the object. A heartbeat names all
// references of its sender, so a lost drop or reply leaks nothing.
// Thread rule: any thread.
// REQUIRES: the host outlives the contexts, references and modules made with it. Its end ends their
// calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/thread_pool.h"
#include "rpc/credentials.h"
#include "rpc/payload.h"
#include "trainer/remote/context_share.h"

namespace tandem {
class Caller;  // proto/worker.proto
}

namespace tandem::remote {

struct HostOptions {
  bool is_worker = false;
  uint32_t rank = 0;  // among the trainers, or among the workers; below 32768
  // Peers of another job are refused. 0: calls wait for Open, or for their deadline.
  uint64_t job_epoch = 0;
  std::string listen = "127.0.0.1:0";
  ThreadPool* pool = nullptr;               // for the calls' kernels
  const ModuleRegistry* modules = nullptr;  // null: hosts nothing
  absl::Duration lease = absl::Seconds(6);
  rpc::Credentials credentials = {};  // the job's
};

// Everything that this process has sent since it started.
struct Traffic {
  uint64_t calls = 0;      // forward
  uint64_t gradients = 0;  // messages
  uint64_t gradient_arrays = 0;
  uint64_t gradient_bytes = 0;  // bytes of the arrays
};

struct Reference {
  std::string owner;  // address
  uint64_t object = 0;
  bool operator<(const Reference& other) const {
    return std::tie(owner, object) < std::tie(other.owner, other.object);
  }
};

class Host {
 public:
  using Done = std::function<void(const absl::Status&)>;
  using Answer = std::function<void(absl::StatusOr<rpc::Payload>)>;

  static absl::StatusOr<std::unique_ptr<Host>> Start(const HostOptions& options);
  // Ends all contexts, tells peers for at most one second, and waits for the tasks that run here.
  // The end of the contexts ends these tasks at once.
  ~Host();

  // For a process that must listen before it joins its job, and learns its rank and epoch only
  // then. Peers may know the process earlier than that; their early calls run now.
  // REQUIRES: job_epoch != 0. Called once, before this process makes a context or a call.
  void Open(uint32_t rank, uint64_t job_epoch);

  const std::string& address() const;
  ThreadPool& pool() const;
  size_t LiveContexts() const;
  size_t NumObjects() const;
  Traffic traffic() const;

  // The functions below serve contexts, references and modules.

  std::shared_ptr<ContextShare> BeginContext(absl::Time deadline);
  // Ends the context here and at every peer that the context knows, except the process that told
  // this one. Ok: the context ended well.
  void EndContext(uint64_t id, const absl::Status& status, const std::string& told_by = "");
  uint64_t NextCall();
  // `what` begins the error message. Runs `answer` once, on any thread.
  void Call(const std::string& address, const char* method, rpc::Payload request,
            absl::Time deadline, std::string what, Answer answer);
  void SendForward(const std::string& address, rpc::Payload request, absl::Time deadline,
                   std::string what, Answer answer);
  void SendGradients(const ContextShare& share, const std::string& address,
                     const GradientBundle& bundle, Done done);
  // Fills the `caller` field that begins every request.
  template <class Request>
  void Sign(Request* request) const {
    FillCaller(request->mutable_caller());
  }
  // BeginHold returns the number of a creation or hold that is about to be sent. EndHold says
  // whether it gave a reference.
  uint64_t BeginHold();
  void EndHold(uint64_t sequence, const Reference* reference);
  // Drops one reference. The owner is told when the last one is dropped.
  void Release(const Reference& reference);

 private:
  struct State;
  void FillCaller(Caller* caller) const;
  explicit Host(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tandem::remote
