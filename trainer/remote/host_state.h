// The inside of a Host. host.cc implements its life, its calls and its contexts; host_service.cc
// implements what it does for other processes.
// Thread rule: stated per member.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "trainer/remote/host.h"
#include "trainer/remote/owned_objects.h"
#include "trainer/remote/task_threads.h"

namespace tandem {
class Caller;       // proto/worker.pb.h
class ContextInfo;  // proto/worker.pb.h
}  // namespace tandem

namespace tandem::remote {

// The largest number of blocking calls and passes at a time.
inline constexpr size_t kMaxTasks = 256;
// The limit of calls that arrive before this process has joined its job.
inline constexpr size_t kMaxEarlyBytes = size_t{64} << 20;
inline constexpr size_t kMaxContexts = 1 << 16;
// The number of ended contexts that are remembered, to refuse late messages.
inline constexpr size_t kMaxOver = 4096;

struct Host::State {
  State(const HostOptions& options, Host* host);

  uint64_t number() const { return rank | (options.is_worker ? uint64_t{0x8000} : 0); }

  // A peer that this process calls.
  struct Peer {
    std::shared_ptr<rpc::Channel> channel;
    absl::Time last_heard;
    absl::Time last_beat = absl::InfinitePast();
    uint64_t process = 0;  // 0: unknown
    bool beating = false;  // a heartbeat is in flight
    size_t calls = 0;      // in flight
    bool silent = false;   // it called here once, and has been silent for a lease
  };
  // A process that called this one.
  struct User {
    std::string address;
    absl::Time expires;
    std::set<uint64_t> contexts;
  };

  using Method = void (State::*)(rpc::Payload request, rpc::Reply reply);
  // A call that arrived before Open.
  struct EarlyCall {
    Method method;
    rpc::Payload request;
    rpc::Reply reply;
  };

  // Returns the channel for a call. Every Link ends with Unlink.
  std::shared_ptr<rpc::Channel> Link(const std::string& address) ABSL_LOCKS_EXCLUDED(mutex);
  void Unlink(const std::string& address, bool heard) ABSL_LOCKS_EXCLUDED(mutex);

  // host_service.cc
  void Register();
  // Returns true if it took the call: Open will run it, or it was refused. The caller's deadline
  // ends the call.
  bool WaitsForOpen(Method method, rpc::Payload& request, rpc::Reply& reply)
      ABSL_LOCKS_EXCLUDED(mutex);
  // Runs a call of the job once field 1 has shown that its caller belongs to the job. Reads nothing
  // else of the message before.
  void Serve(Method method, rpc::Payload request, rpc::Reply reply);
  absl::Status AdmitCaller(const Caller& caller);
  User& Renew(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The caller is the first holder. Renews the caller's lease: if it had expired while the object
  // was made, nothing would ever free the object.
  uint64_t Own(OwnedObject object, const Caller& caller, uint64_t sequence)
      ABSL_LOCKS_EXCLUDED(mutex);
  absl::StatusOr<std::shared_ptr<ContextShare>> Enter(const ContextInfo& info,
                                                      const Caller& caller);
  absl::StatusOr<OwnedObject> Find(uint64_t object, const char* what) const;
  void Create(rpc::Payload payload, rpc::Reply reply);
  void Hold(rpc::Payload payload, rpc::Reply reply);
  void Drop(rpc::Payload payload, rpc::Reply reply);
  void Beat(rpc::Payload payload, rpc::Reply reply);
  void Fetch(rpc::Payload payload, rpc::Reply reply);
  void Forward(rpc::Payload payload, rpc::Reply reply);
  absl::StatusOr<rpc::Payload> RunForward(rpc::Payload& payload);
  void Gradient(rpc::Payload payload, rpc::Reply reply);
  void CreateOptimizer(rpc::Payload payload, rpc::Reply reply);
  void Step(rpc::Payload payload, rpc::Reply reply);
  void End(rpc::Payload payload, rpc::Reply reply);
  void WorkerStatistics(rpc::Payload payload, rpc::Reply reply);
  // Runs `task` on a thread of its own and replies with its result.
  void Later(rpc::Reply reply, std::function<absl::StatusOr<rpc::Payload>()> task);

  // host.cc
  // Returns a number; all creations and holds with a smaller number have been answered.
  uint64_t SettledSequence() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Watch();  // the watcher's thread
  void SendBeats(absl::Time now);
  void ForgetSilent(absl::Time now);
  // Takes the channels of silent peers that nothing here needs.
  std::vector<std::shared_ptr<rpc::Channel>> TakeUnused() ABSL_LOCKS_EXCLUDED(mutex);
  // Ends the contexts that know this peer, with `reason`.
  void LosePeer(const std::string& address, const absl::Status& reason);

  const HostOptions options;
  Host* const host;
  const uint64_t process;  // identifies this run of the process
  std::atomic<uint32_t> rank;
  std::atomic<uint64_t> job_epoch;  // 0: not open. Open sets it after the rank, under the mutex.
  std::string address;
  std::atomic<uint64_t> calls{0}, gradients{0}, gradient_arrays{0}, gradient_bytes{0};
  std::atomic<uint64_t> next_call;

  mutable absl::Mutex mutex;
  std::map<std::string, Peer> peers ABSL_GUARDED_BY(mutex);
  std::map<uint64_t, User> users ABSL_GUARDED_BY(mutex);  // by process
  std::map<uint64_t, std::shared_ptr<ContextShare>> contexts ABSL_GUARDED_BY(mutex);
  // Contexts that ended lately, and their end.
  std::map<uint64_t, absl::Status> over ABSL_GUARDED_BY(mutex);
  std::deque<uint64_t> over_order ABSL_GUARDED_BY(mutex);
  OwnedObjects objects ABSL_GUARDED_BY(mutex);
  std::map<Reference, uint64_t> references ABSL_GUARDED_BY(mutex);  // held by this process, counted
  std::set<uint64_t> holds_in_flight ABSL_GUARDED_BY(mutex);
  uint64_t next_sequence ABSL_GUARDED_BY(mutex) = 1;
  std::vector<EarlyCall> early ABSL_GUARDED_BY(mutex);  // in order of arrival
  size_t early_bytes ABSL_GUARDED_BY(mutex) = 0;        // bytes of the requests in `early`
  size_t farewells ABSL_GUARDED_BY(mutex) = 0;          // ends and drops in flight
  bool closing ABSL_GUARDED_BY(mutex) = false;          // nothing new begins
  bool closed ABSL_GUARDED_BY(mutex) = false;           // no call is made any more

  TaskThreads tasks{kMaxTasks};
  rpc::Server server;
  std::thread watcher;
};

}  // namespace tandem::remote
