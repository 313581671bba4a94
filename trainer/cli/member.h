// What every member does around its own work: join the job through the master, and leave it with a reason.
// Thread rule: the main thread, but for what the comments say.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "rpc/master/client.h"
#include "trainer/cli/run_options.h"

namespace tandem::cli {

// This machine's name, by which members know who shares a machine.
std::string HostName();

// Calls `on_signal` once, on its own thread, after SIGTERM or SIGINT: soon, or as long as `needed` (asked on that thread) says
// so until kStopGrace later. Signals often go to all members at once, and trainers then still write a checkpoint with the
// servers' help; a member ends earlier by itself when the job does.
class SignalWatch {
 public:
  SignalWatch(std::function<bool()> needed, std::function<void()> on_signal);
  ~SignalWatch();

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Equal for roles that were told the same job and the same numbers of servers and trainers.
uint64_t FingerprintOf(const Job& job, const RoleOptions& options);

// Joins as `role` and catches signals from then on. `address` is where others reach this process.
absl::StatusOr<std::unique_ptr<rpc::MasterClient>> Join(const RoleOptions& options, Role role, const Job& job,
                                                        const rpc::Credentials& credentials, const std::string& address,
                                                        std::function<void(absl::Status)> on_failure);

// Tells the master how this member ended (if it is still in the job), reports to the user and returns the exit code.
// `index` names a member that never joined; -1: it has no rank yet.
int LeaveJob(Role role, int index, rpc::MasterClient* client, const absl::Status& status);

}  // namespace tandem::cli
