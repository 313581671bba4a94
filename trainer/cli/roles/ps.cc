// `tandem ps`: a parameter server. It holds its share of the tables until the job is over.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "ps/server/service.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/load_job.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/job_secret.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/roles/job_start.h"
#include "trainer/cli/roles/member.h"

namespace tandem::cli {

namespace {

ps::FolderLimits FoldersOf(const RunOptions& options) {
  ps::FolderLimits limits{.save_below = {options.out}, .load_below = {options.out}};
  const bool names_folder =
      !options.resume.empty() && options.resume != kResumeNewest && options.resume != kResumeAuto;
  if (names_folder) limits.load_below.push_back(options.resume);
  return limits;
}

absl::Status Serve(const RoleOptions& options, const tasks::Kinds& kinds,
                   std::unique_ptr<rpc::MasterClient>& client) {
  ASSIGN_OR_RETURN(const rpc::Credentials credentials, CredentialsOfRole(AccessOf(options), "ps"));
  ASSIGN_OR_RETURN(const Job job, LoadJobOf(options, kinds));
  ps::TableHost host(job.ps().threads());
  ps::EmbeddingService service(host);
  service.RestrictFolders(FoldersOf(options));
  rpc::Server server(credentials);
  service.Register(server);
  RETURN_IF_ERROR(server.Start(options.listen));
  if (job.ps().transport() == ParameterServer::AUTO) {
    if (const absl::Status shared = server.ServeSharedMemory(); !shared.ok()) {
      std::fputs(
          RoleLine("ps", absl::StrCat("rows go over gRPC alone: ", std::string(shared.message())))
              .c_str(),
          stderr);
    }
  }
  // Parked calls of a failed job must not delay the server's end.
  ASSIGN_OR_RETURN(client, Join(options, PS, job, credentials, server.address(),
                                [&host](absl::Status reason) { host.Fail(reason); }));
  const rpc::Assignment& assignment = client->assignment();
  service.Open(assignment.job_epoch, assignment.generation, assignment.shard_map, assignment.rank);
  absl::Status status;
  {
    const ServerStart start(*client, server, options.out);
    const SignalWatch watch([] { return true; },
                            [&client] { client->Leave(SignalStatus()).IgnoreError(); });
    status = client->WaitForCompletion();
  }
  if (!status.ok()) host.Fail(status);
  server.Shutdown(0.5);
  return ReceivedSignal() != 0 ? SignalStatus() : status;
}

}  // namespace

int RunPs(const RoleOptions& options, const tasks::Kinds& kinds) {
  std::unique_ptr<rpc::MasterClient> client;
  const absl::Status status = Serve(options, kinds, client);
  return LeaveJob(PS, options.index, client.get(), status);
}

}  // namespace tandem::cli
