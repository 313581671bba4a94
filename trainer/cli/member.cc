#include "trainer/cli/member.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
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

uint64_t FingerprintOf(const Job& job, const RoleOptions& options) {
  return StableHash(
      absl::StrCat(JobFingerprint(job), " ", options.num_ps, " ", job::NumTrainers(job)));
}

absl::StatusOr<std::unique_ptr<rpc::MasterClient>> Join(
    const RoleOptions& options, Role role, const Job& job, const rpc::Credentials& credentials,
    const std::string& address, std::function<void(absl::Status)> on_failure) {
  rpc::MemberSelf self;
  self.role = role;
  self.host = HostName();
  self.pid = getpid();
  self.address = address;
  self.preferred_index = options.index;
  self.job_fingerprint = FingerprintOf(job, options);
  auto client = rpc::MasterClient::Connect(
      options.master, self, std::move(on_failure),
      {.connect_timeout = absl::Seconds(options.join_timeout), .credentials = credentials});
  // Before this point a signal ends the process at once, because no other member depends on it yet.
  CatchSignals();
  if (client.status().code() == absl::StatusCode::kFailedPrecondition) {
    // Another job, or no such place: a configuration error.
    return absl::InvalidArgumentError(client.status().message());
  }
  return client;
}

int LeaveJob(Role role, int index, rpc::MasterClient* client, const absl::Status& status) {
  if (client == nullptr) {
    const std::string name = index >= 0        ? rpc::MemberName(role, static_cast<uint32_t>(index))
                             : role == PS      ? "ps"
                             : role == TRAINER ? "trainer"
                                               : "worker";
    // The master tells a joining member that the job was stopped, perhaps before this process gets
    // its own signal.
    return ReportRoleError(name, status, /*told=*/absl::IsCancelled(status));
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
