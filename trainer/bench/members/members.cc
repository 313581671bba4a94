#include "trainer/bench/members/members.h"

#include <google/protobuf/text_format.h>
#include <unistd.h>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "ps/server/service.h"
#include "rpc/channel.h"
#include "rpc/master/service.h"
#include "trainer/bench/members/capped_link.h"
#include "trainer/cli/roles/member.h"

namespace tandem::bench {

namespace {

class Reports {
 public:
  void Register(rpc::Server& server) {
    server.Handle("tandem.BenchService", "Report", rpc::MethodKind::UNARY,
                  [this](rpc::Payload request, rpc::Reply reply) {
                    const std::string_view bytes = request.Flatten();
                    MemberReport report;
                    if (!report.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
                      return reply(absl::InvalidArgumentError("malformed report"));
                    {
                      absl::MutexLock lock(&mutex_);
                      reports_.push_back(std::move(report));
                    }
                    reply(rpc::Payload());
                  });
  }
  std::vector<MemberReport> Take() {
    absl::MutexLock lock(&mutex_);
    return std::move(reports_);
  }

 private:
  absl::Mutex mutex_;
  std::vector<MemberReport> reports_ ABSL_GUARDED_BY(mutex_);
};

std::vector<std::string> RoleArguments(const MembersPlan& plan, const char* role,
                                       const std::string& master, uint32_t index) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintToString(*plan.what, &text);
  std::vector<std::string> arguments{"bench", plan.command};
  for (const auto& [flag, value] : {std::pair<const char*, std::string>("--role", role),
                                    {"--case", text},
                                    {"--master", master},
                                    {"--index", absl::StrCat(index)},
                                    {"--secret-file", "-"}}) {
    arguments.insert(arguments.end(), {flag, value});
  }
  return arguments;
}

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

}  // namespace

absl::StatusOr<MembersOutcome> RunMembers(const MembersPlan& plan) {
  Reports reports;
  rpc::MembershipOptions membership;
  membership.num_ps = plan.servers;
  membership.num_trainers = plan.trainers;
  rpc::MasterService master(membership);
  ASSIGN_OR_RETURN(const rpc::Secret secret, rpc::Secret::Draw());
  rpc::Server server((rpc::Credentials(secret)));
  master.RegisterHandlers(server);
  reports.Register(server);
  std::unique_ptr<Hub> hub;
  if (plan.bits_per_second > 0) {
    ASSIGN_OR_RETURN(hub, Hub::Make());
  }
  RETURN_IF_ERROR(server.Start(absl::StrCat(hub != nullptr ? Hub::host() : "127.0.0.1", ":0")));
  cli::Supervisor supervisor(&secret);
  for (uint32_t i = 0; i < plan.servers; ++i) {
    RETURN_IF_ERROR(supervisor.Start(absl::StrCat("ps-", i),
                                     RoleArguments(plan, "server", server.address(), i)));
  }
  for (uint32_t i = 0; i < plan.trainers; ++i) {
    RETURN_IF_ERROR(supervisor.Start(absl::StrCat("trainer-", i),
                                     RoleArguments(plan, "trainer", server.address(), i)));
  }
  const cli::Supervisor::Outcome outcome = supervisor.Run();
  server.Shutdown(0);
  MembersOutcome ended{outcome, reports.Take()};
  if (ended.processes.exit_code == 0 && ended.reports.size() != plan.trainers) {
    return absl::InternalError(
        absl::StrCat(ended.reports.size(), " of ", plan.trainers, " trainers reported"));
  }
  return ended;
}

absl::Status ParsePlan(const std::string& text, google::protobuf::Message* what) {
  if (google::protobuf::TextFormat::ParseFromString(text, what)) return absl::OkStatus();
  return absl::InvalidArgumentError("--case is no case");
}

cli::RoleOptions RoleOf(const MemberOptions& options) {
  cli::RoleOptions role;
  role.master = options.master;
  role.index = options.index;
  role.secret_file = options.secret_file;
  return role;
}

int RunBenchServer(const cli::RoleOptions& options, const ServerPlan& plan) {
  std::unique_ptr<rpc::MasterClient> master;
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const rpc::Credentials credentials,
                     cli::CredentialsOfRole(cli::AccessOf(options), "ps"));
    ps::TableHost host(plan.threads);
    ps::EmbeddingService service(host);
    rpc::Server server(credentials);
    service.Register(server);
    if (plan.more) plan.more(server);
    RETURN_IF_ERROR(server.Start(absl::StrCat(plan.host, ":0")));
    if (plan.shared_memory) RETURN_IF_ERROR(server.ServeSharedMemory());
    ASSIGN_OR_RETURN(master, JoinBench(PS, options, credentials, server.address()));
    const rpc::Assignment& assignment = master->assignment();
    service.Open(assignment.job_epoch, assignment.generation, assignment.shard_map,
                 assignment.rank);
    const absl::Status completion = master->WaitForCompletion();
    if (!completion.ok()) host.Fail(completion);
    server.Shutdown(0.5);
    return completion;
  }();
  return cli::LeaveJob(PS, options.index, master.get(), status);
}

int RunBenchTrainer(
    const cli::RoleOptions& options,
    const std::function<absl::StatusOr<MemberReport>(rpc::MasterClient&)>& measure) {
  std::unique_ptr<rpc::MasterClient> master;
  const absl::Status status = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const rpc::Credentials credentials,
                     cli::CredentialsOfRole(cli::AccessOf(options), "trainer"));
    ASSIGN_OR_RETURN(master, JoinBench(TRAINER, options, credentials, /*address=*/""));
    ASSIGN_OR_RETURN(const MemberReport report, measure(*master));
    rpc::Channel parent(options.master, credentials);
    const auto reported = parent.Call("/tandem.BenchService/Report",
                                      rpc::Payload(report.SerializeAsString()), {kBenchTimeout});
    return reported.Wait(absl::Now() + kBenchTimeout + absl::Seconds(1)).status();
  }();
  return cli::LeaveJob(TRAINER, options.index, master.get(), status);
}

}  // namespace tandem::bench
