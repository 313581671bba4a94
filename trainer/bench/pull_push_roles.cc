#include "trainer/bench/pull_push_roles.h"

#include <memory>
#include <string>
#include <unistd.h>

#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "proto/bench.pb.h"
#include "ps/server/service.h"
#include "rpc/channel.h"
#include "rpc/master/client.h"
#include "rpc/server.h"
#include "trainer/bench/pull_push_client.h"
#include "trainer/bench/raw_bytes.h"
#include "trainer/cli/roles/member.h"
#include "trainer/cli/process/job_secret.h"

namespace tandem::bench {

namespace {

absl::StatusOr<std::unique_ptr<rpc::MasterClient>> JoinBench(Role role,
                                                             const cli::RoleOptions& options,
                                                             const rpc::Credentials& credentials,
                                                             const std::string& address) {
  rpc::MemberSelf self;
  self.role = role;
  self.host = "localhost";
  self.pid = getpid();
  self.address = address;
  self.preferred_index = options.index;
  // The parent ends this process.
  return rpc::MasterClient::Connect(options.master, self, [](const absl::Status&) {},
                                    {.credentials = credentials});
}

absl::Status Serve(const PullPushCase& bench, const cli::RoleOptions& options,
                   std::unique_ptr<rpc::MasterClient>& master) {
  ASSIGN_OR_RETURN(
      const rpc::Credentials credentials,
      cli::CredentialsOfRole(
          {options.secret_file, options.master, options.listen, options.advertise}, "ps"));
  ps::TableHost host(bench.threads());
  ps::EmbeddingService service(host);
  RawBytesService raw;
  rpc::Server server(credentials);
  service.Register(server);
  raw.Register(server);
  RETURN_IF_ERROR(server.Start("127.0.0.1:0"));
  if (bench.path() == PullPushCase::SHM) RETURN_IF_ERROR(server.ServeSharedMemory());
  ASSIGN_OR_RETURN(master, JoinBench(PS, options, credentials, server.address()));
  const rpc::Assignment& assignment = master->assignment();
  service.Open(assignment.job_epoch, assignment.generation, assignment.shard_map, assignment.rank);
  const absl::Status status = master->WaitForCompletion();
  if (!status.ok()) host.Fail(status);
  server.Shutdown(0.5);
  return status;
}

absl::Status MeasureAndReport(const PullPushCase& bench, const cli::RoleOptions& options,
                              std::unique_ptr<rpc::MasterClient>& master) {
  ASSIGN_OR_RETURN(
      const rpc::Credentials credentials,
      cli::CredentialsOfRole(
          {options.secret_file, options.master, options.listen, options.advertise}, "trainer"));
  ASSIGN_OR_RETURN(master, JoinBench(TRAINER, options, credentials, /*address=*/""));
  ASSIGN_OR_RETURN(const PullPushFigures figures, PullPushClient(bench, *master).Run());
  rpc::Channel parent(options.master, credentials);
  const auto reported = parent.Call("/tandem.BenchService/Report",
                                    rpc::Payload(figures.SerializeAsString()), {kBenchTimeout});
  return reported.Wait(absl::Now() + kBenchTimeout + absl::Seconds(1)).status();
}

}  // namespace

int RunPullPushServer(const PullPushCase& bench, const cli::RoleOptions& options) {
  std::unique_ptr<rpc::MasterClient> master;
  const absl::Status status = Serve(bench, options, master);
  return cli::LeaveJob(PS, options.index, master.get(), status);
}

int RunPullPushClient(const PullPushCase& bench, const cli::RoleOptions& options) {
  std::unique_ptr<rpc::MasterClient> master;
  const absl::Status status = MeasureAndReport(bench, options, master);
  return cli::LeaveJob(TRAINER, options.index, master.get(), status);
}

}  // namespace tandem::bench
