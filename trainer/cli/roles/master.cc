// `tandem master`: keeps the members and the state of the job.
#include <cstdio>

#include "kernels/base/status_macros.h"
#include "rpc/master/service.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/load_job.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/job_secret.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/roles/job_start.h"
#include "trainer/cli/roles/member.h"
#include "trainer/job/layout.h"

namespace tandem::cli {

namespace {

absl::Status Serve(const RoleOptions& options, const tasks::Kinds& kinds, bool* told) {
  ASSIGN_OR_RETURN(const rpc::Credentials credentials,
                   CredentialsOfRole(AccessOf(options), "master-0"));
  ASSIGN_OR_RETURN(const Job job, LoadJobOf(options, kinds));
  rpc::MembershipOptions membership;
  membership.num_ps = static_cast<uint32_t>(options.num_ps);
  membership.num_trainers = static_cast<uint32_t>(job::NumTrainers(job));
  membership.num_workers = static_cast<uint32_t>(options.num_workers);
  membership.job_fingerprint = FingerprintOf(job, options);
  membership.register_timeout_seconds =
      options.join_timeout.value_or(job.runtime().timeout_seconds());
  rpc::MasterService service(membership);
  rpc::Server server(credentials);
  service.RegisterHandlers(server);
  const std::string& listen = options.listen.empty() ? options.master : options.listen;
  if (listen.empty())
    return absl::InvalidArgumentError(
        "a master needs --listen HOST:PORT, where the others reach it");
  RETURN_IF_ERROR(server.Start(listen));
  absl::Status status;
  {
    const auto runs = [&service] { return service.phase() == rpc::Phase::RUNNING; };
    const SignalWatch watch(runs, [&service] { service.Fail(SignalStatus()); });
    const ReadyWatch ready(runs, server);
    status = service.WaitForEnd(
        [](const std::string& text) { std::fputs(RoleLine("master-0", text).c_str(), stderr); });
  }
  // A member explains its own failure. The master explains the failure of a silent member.
  *told = status.code() != absl::StatusCode::kUnavailable &&
          status.code() != absl::StatusCode::kDeadlineExceeded;
  server.Shutdown(0.5);
  return status;
}

}  // namespace

int RunMaster(const RoleOptions& options, const tasks::Kinds& kinds) {
  CatchSignals();
  bool told = false;
  const absl::Status status = Serve(options, kinds, &told);
  return status.ok() ? 0 : ReportRoleError("master-0", status, told);
}

}  // namespace tandem::cli
