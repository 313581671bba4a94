// `tandem worker`: hosts remote modules for the job's trainers until the job is over.
#include "kernels/base/status_macros.h"
#include "proto/wire.pb.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/load_job.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/job_secret.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/roles/member.h"
#include "trainer/remote/host.h"
#include "trainer/remote/layer_modules.h"

namespace tandem::cli {

namespace {

absl::Status Serve(const RoleOptions& options, const tasks::Kinds& kinds,
                   std::unique_ptr<rpc::MasterClient>& client) {
  ASSIGN_OR_RETURN(const rpc::Credentials credentials,
                   CredentialsOfRole(AccessOf(options), "worker"));
  ASSIGN_OR_RETURN(const Job job, LoadJobOf(options, kinds));
  ThreadPool pool(job.runtime().threads());
  remote::ModuleRegistry modules;
  remote::AddLayers(modules);
  // The host must listen before it can join. Calls wait until it has joined.
  ASSIGN_OR_RETURN(const auto host, remote::Host::Start({.is_worker = true,
                                                         .listen = options.listen,
                                                         .pool = &pool,
                                                         .modules = &modules,
                                                         .credentials = credentials}));
  ASSIGN_OR_RETURN(client,
                   Join(options, WORKER, job, credentials, host->address(), [](absl::Status) {}));
  host->Open(client->assignment().rank, client->assignment().job_epoch);
  const SignalWatch watch([] { return true; },
                          [&client] { client->Leave(SignalStatus()).IgnoreError(); });
  const absl::Status status = client->WaitForCompletion();
  return ReceivedSignal() != 0 ? SignalStatus() : status;
}

}  // namespace

int RunWorker(const RoleOptions& options, const tasks::Kinds& kinds) {
  std::unique_ptr<rpc::MasterClient> client;
  const absl::Status status = Serve(options, kinds, client);
  return LeaveJob(WORKER, options.index, client.get(), status);
}

}  // namespace tandem::cli
