#include "trainer/cli/roles/member.h"

#include <cstdio>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "rpc/resolve.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/host_name.h"
#include "trainer/cli/process/signals.h"
#include "trainer/job/job_config.h"
#include "trainer/job/layout.h"

namespace tandem::cli {

SignalWatch::SignalWatch(std::function<bool()> needed, std::function<void()> on_signal) {
  thread_ = std::thread([this, needed = std::move(needed), on_signal = std::move(on_signal)] {
    while (!stopping_ && ReceivedSignal() == 0) absl::SleepFor(absl::Milliseconds(50));
    const absl::Time end = absl::Now() + kStopGrace;
    while (!stopping_ && needed() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(50));
    if (!stopping_) on_signal();
  });
}

SignalWatch::~SignalWatch() {
  stopping_ = true;
  thread_.join();
}

RoleAccess AccessOf(const RoleOptions& options) {
  return {options.secret_file, options.master, options.listen, options.advertise};
}

uint64_t FingerprintOf(const Job& job, const RoleOptions& options) {
  return StableHash(
      absl::StrCat(JobFingerprint(job), " ", options.num_ps, " ", job::NumTrainers(job)));
}

namespace {

constexpr double kJoinTimeout = 30;  // seconds

std::string NameOf(Role role, int index) {
  if (index >= 0) return rpc::MemberName(role, static_cast<uint32_t>(index));
  return role == PS ? "ps" : role == TRAINER ? "trainer" : "worker";
}

// Waits until `who` has an address. Names of a cluster may get theirs late.
absl::Status AwaitMember(const std::string& who, const std::string& address, absl::Time deadline,
                         rpc::PeriodicNote& note, const std::function<absl::Status()>& failure) {
  const absl::Time began = absl::Now();
  const absl::Status found = rpc::AwaitAddress(address, deadline, [&](const std::string& why) {
    note.Tell(absl::StrCat("waiting for ", who, " at ", address, ": ", why));
    return failure();
  });
  if (found.ok() || !failure().ok()) return found;
  return absl::UnavailableError(absl::StrFormat("%s at %s unreachable for %.0f s: %s", who, address,
                                                absl::ToDoubleSeconds(absl::Now() - began),
                                                found.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<rpc::MasterClient>> Join(
    const RoleOptions& options, Role role, const Job& job, const rpc::Credentials& credentials,
    const std::string& address, std::function<void(absl::Status)> on_failure) {
  const absl::Duration timeout = absl::Seconds(options.join_timeout.value_or(kJoinTimeout));
  const std::string name = NameOf(role, options.index);
  const auto on_wait = [name](const std::string& text) {
    std::fputs(RoleLine(name, text).c_str(), stderr);
  };
  rpc::PeriodicNote note(on_wait);
  RETURN_IF_ERROR(AwaitMember("master-0", options.master, absl::Now() + timeout, note,
                              [] { return absl::OkStatus(); }));
  rpc::MemberSelf self;
  self.role = role;
  self.host = HostName();
  self.pid = getpid();
  self.address = options.advertise;
  if (self.address.empty() && !address.empty()) {
    ASSIGN_OR_RETURN(self.address, rpc::ReachedAt(address, options.master));
  }
  self.preferred_index = options.index;
  self.job_fingerprint = FingerprintOf(job, options);
  auto client = rpc::MasterClient::Connect(
      options.master, self, std::move(on_failure),
      {.connect_timeout = timeout, .credentials = credentials, .on_wait = on_wait});
  // Before this point a signal ends the process at once, because no other member depends on it yet.
  CatchSignals();
  if (client.status().code() == absl::StatusCode::kFailedPrecondition) {
    // Another job, or no such place: a configuration error.
    return absl::InvalidArgumentError(client.status().message());
  }
  if (!client.ok() || role == PS) return client;  // servers call nobody but the master
  const absl::Time deadline = absl::Now() + timeout;
  for (const rpc::Member& member : (*client)->assignment().members) {
    if (member.address.empty()) continue;
    const absl::Status found =
        AwaitMember(rpc::MemberName(member.role, member.rank), member.address, deadline, note,
                    [&client] { return (*client)->failure(); });
    if (found.ok()) continue;
    (*client)->Leave(found).IgnoreError();
    return found;
  }
  return client;
}

int LeaveJob(Role role, int index, rpc::MasterClient* client, const absl::Status& status) {
  if (client == nullptr) {
    // The master tells a joining member that the job was stopped, perhaps before this process gets
    // its own signal.
    return ReportRoleError(NameOf(role, index), status, /*told=*/absl::IsCancelled(status));
  }
  const absl::Status job_failure = client->failure();
  // Read the signal now. The end of the job that this member causes may come back as a signal,
  // which explains nothing.
  const int signal = ReceivedSignal();
  client->Leave(status).IgnoreError();  // the master may be gone
  if (status.ok()) return 0;
  const std::string name = rpc::MemberName(role, client->assignment().rank);
  return job_failure.ok() ? ReportRoleError(name, status, false, signal)
                          : ReportRoleError(name, job_failure, true, signal);
}

}  // namespace tandem::cli
