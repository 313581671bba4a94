// The work that every member does around its own: join the job through the master, and leave it
// with a reason.
// Thread rule: the main thread, unless a comment says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "rpc/master/client.h"
#include "trainer/cli/process/job_secret.h"
#include "trainer/cli/run_options.h"

namespace tandem {
class Job;        // proto/job.pb.h
enum Role : int;  // proto/wire.pb.h
}  // namespace tandem

namespace tandem::cli {

// Calls `on_signal` once, on a thread of its own, after SIGTERM or SIGINT. Calls it soon, but waits
// while `needed` (called on that thread) returns true, at most kStopGrace. Signals often reach all
// members at once, and trainers then still write a checkpoint with the servers' help. A member ends
// earlier by itself when the job ends.
class SignalWatch {
 public:
  SignalWatch(std::function<bool()> needed, std::function<void()> on_signal);
  ~SignalWatch();

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// How a role reaches the others, and what it must know for that.
RoleAccess AccessOf(const RoleOptions& options);

// Equal for roles that were given the same job and the same numbers of servers and trainers.
uint64_t FingerprintOf(const Job& job, const RoleOptions& options);

// Joins as `role` and catches signals from then on. This process listens at `address`; others reach
// it where --advertise says, or at rpc::ReachedAt. Returns when every member's name has an address.
// While it waits, tells on stderr for whom.
absl::StatusOr<std::unique_ptr<rpc::MasterClient>> Join(
    const RoleOptions& options, Role role, const Job& job, const rpc::Credentials& credentials,
    const std::string& address, std::function<void(absl::Status)> on_failure);

// Tells the master how this member ended, if the member is still in the job. Reports to the user
// and returns the exit code. `index` names a member that never joined; -1: it has no rank yet.
int LeaveJob(Role role, int index, rpc::MasterClient* client, const absl::Status& status);

}  // namespace tandem::cli
