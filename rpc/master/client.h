// A member's link to the master. Registers, sends a heartbeat every second, hears when the job
// ends, and gives access to the rendezvous store.
// Thread rule: all methods from any thread. `on_failure` runs on the client's own thread and must
// not destroy the client.
// Invariant: on_failure is called at most once, and never after Leave. Every wait ends when the job
// ends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/trace/trace.h"
#include "rpc/credentials.h"
#include "rpc/master/member.h"
#include "rpc/master/shard_map.h"
#include "rpc/store/store.h"
#include "rpc/wait_note.h"

namespace tandem {
class RequestHeader;  // proto/wire.pb.h
class RoleTrace;      // proto/trace.pb.h
}  // namespace tandem

namespace tandem::rpc {

struct MasterClientOptions {
  absl::Duration connect_timeout = absl::Seconds(30);  // without any answer, while registering
  absl::Duration heartbeat_period = absl::Seconds(1);
  absl::Duration heartbeat_deadline = absl::Seconds(2);
  absl::Duration master_timeout = absl::Seconds(8);  // without any answer, later
  Credentials credentials = {};                      // the job's
  WaitNote on_wait = nullptr;                        // while registering
};

// The identity of this process.
struct MemberSelf {
  Role role{};
  std::string host;
  int64_t pid = 0;
  std::string address;       // host:port where other members reach it
  int preferred_index = -1;  // the wanted rank; -1: any
  uint32_t incarnation = 1;
  uint64_t job_fingerprint = 0;  // a hash of the resolved job
};

// The master's decisions about this member and the job.
struct Assignment {
  Role role{};
  uint32_t rank = 0;
  uint32_t incarnation = 1;
  uint64_t job_epoch = 0;
  uint32_t generation = 1;
  std::string job_token;
  ShardMap shard_map;
  std::vector<Member> members;  // parameter servers by rank, then trainers, then workers

  std::vector<Member> MembersOf(Role wanted) const;
};

class MasterClient {
 public:
  // Blocks until all members have registered. Errors:
  // - Unavailable "master HOST:PORT unreachable for 30 s", and why;
  // - Aborted if this process was restarted, and the running job has lost its predecessor;
  // - FailedPrecondition if the master refuses this process;
  // - Unauthenticated if the master belongs to a job with another secret;
  // - the job's failure, if the job fails first.
  static absl::StatusOr<std::unique_ptr<MasterClient>> Connect(
      const std::string& master_address, const MemberSelf& self,
      std::function<void(absl::Status)> on_failure, const MasterClientOptions& options = {});
  // Does not tell the master. Without Leave the master takes this member for dead.
  ~MasterClient();
  MasterClient(const MasterClient&) = delete;
  MasterClient& operator=(const MasterClient&) = delete;

  const Assignment& assignment() const;
  RequestHeader MakeHeader() const;
  // The job's credentials, for connections to other members.
  const Credentials& credentials() const;
  // The master's rendezvous store. Waits end when the job fails.
  Store& store();

  // Records this member's calls, and makes the master record its side of them. Sends a heartbeat at
  // once, so that the trace shows one. Null stops recording.
  void TraceCalls(std::shared_ptr<Tracer> tracer);
  // The spans that the master has recorded since the last call, for all members; role "master".
  // Blocks.
  absl::StatusOr<RoleTrace> TakeTrace(absl::Time deadline);

  // Ok while nothing has failed. Otherwise the job's first failure, or an error that the master is
  // lost.
  absl::Status failure() const;
  // Returns Ok when every trainer has left without error, otherwise the failure. on_failure has
  // returned by then and is not called any more.
  absl::Status WaitForCompletion();
  // Tells the master that this member has ended, and stops heartbeats. The result only says whether
  // the master heard it.
  absl::Status Leave(const absl::Status& status);

 private:
  struct State;
  explicit MasterClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::rpc
