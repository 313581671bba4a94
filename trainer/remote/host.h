// A process's place in distributed autograd: it hosts objects for others (worker.proto), keeps the shares of contexts that it takes
// part in, and calls its peers. Trainers have one too: gradients of what they send come back to them.
//
// Objects belong to the processes that refer to them. Who holds a reference, or takes part in a context, beats; who has said nothing for a lease
// is dead: its references go, with the last one the object, and its contexts end. A beat names all that its sender refers to, so a
// drop or a reply that was lost leaks nothing.
// Thread rule: any thread. It outlives the contexts, references and modules that are made with it; its end ends their calls.
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
  uint32_t rank = 0;           // among the trainers, or the workers; below 32768
  uint64_t job_epoch = 0;      // peers of another job are refused; 0: they wait for Open, or for their deadline
  std::string listen = "127.0.0.1:0";
  ThreadPool* pool = nullptr;  // of the calls' kernels
  const ModuleRegistry* modules = nullptr;  // null: hosts nothing
  absl::Duration lease = absl::Seconds(6);
  rpc::Credentials credentials = {};  // the job's
};

// What has left this process since it started.
struct Traffic {
  uint64_t calls = 0;      // forward
  uint64_t gradients = 0;  // messages
  uint64_t gradient_arrays = 0;
  uint64_t gradient_bytes = 0;  // of arrays
};

struct Reference {
  std::string owner;  // address
  uint64_t object = 0;
  bool operator<(const Reference& other) const { return std::tie(owner, object) < std::tie(other.owner, other.object); }
};

class Host {
 public:
  using Done = std::function<void(const absl::Status&)>;
  using Answer = std::function<void(absl::StatusOr<rpc::Payload>)>;

  static absl::StatusOr<std::unique_ptr<Host>> Start(const HostOptions& options);
  // Ends all contexts, tells peers for at most a second, and waits for what runs here, which then ends at once.
  ~Host();

  // For a process that must listen before it can join its job, and learns only then who it is: its peers may know before it does, and
  // what they called until now runs now. REQUIRES: job_epoch != 0. Once, before it makes a context or a call.
  void Open(uint32_t rank, uint64_t job_epoch);

  const std::string& address() const;
  ThreadPool& pool() const;
  size_t LiveContexts() const;
  size_t NumObjects() const;
  Traffic traffic() const;

  // Below: for contexts, references and modules.

  std::shared_ptr<ContextShare> BeginContext(absl::Time deadline);
  // Here and at every peer that the context has, but for who told this process. Ok: it went well.
  void EndContext(uint64_t id, const absl::Status& status, const std::string& told_by = "");
  uint64_t NextCall();
  // `what` begins the error. Runs `answer` once, on any thread.
  void Call(const std::string& address, const char* method, rpc::Payload request, absl::Time deadline, std::string what, Answer answer);
  void SendForward(const std::string& address, rpc::Payload request, absl::Time deadline, std::string what, Answer answer);
  void SendGradients(const ContextShare& share, const std::string& address, const GradientBundle& bundle, Done done);
  // Fills the `caller` that every request begins with.
  template <class Request>
  void Sign(Request* request) const {
    FillCaller(request->mutable_caller());
  }
  // The number of a creation or hold that is sent now; EndHold tells whether it gave a reference.
  uint64_t BeginHold();
  void EndHold(uint64_t sequence, const Reference* reference);
  // One reference less; the last one is told to the owner.
  void Release(const Reference& reference);

 private:
  struct State;
  void FillCaller(Caller* caller) const;
  explicit Host(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tandem::remote
