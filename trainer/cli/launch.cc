// `tandem launch`: runs one master, parameter servers and trainers as child processes on this
// machine.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "proto/job.pb.h"
#include "rpc/listen.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/load_job.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/folder_lock.h"
#include "trainer/cli/process/job_secret.h"
#include "trainer/cli/process/scheduler.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/process/supervisor.h"
#include "trainer/cli/report.h"
#include "trainer/cli/run_folder.h"
#include "trainer/job/job_options.h"
#include "trainer/job/layout.h"

namespace tandem::cli {

namespace {

std::vector<std::string> RoleArguments(const char* role, const RunOptions& options,
                                       int num_trainers, const std::string& master, int index) {
  std::vector<std::string> arguments{role, options.job_path, "--master", master};
  const std::string listen = std::string(role) == "master" ? master : "127.0.0.1:0";
  arguments.insert(arguments.end(), {"--listen", listen, "--ps", absl::StrCat(options.num_ps),
                                     "--trainers", absl::StrCat(num_trainers), "--workers",
                                     absl::StrCat(options.num_workers), "--out", options.out});
  arguments.insert(arguments.end(), {"--secret-file", "-"});  // the supervisor's pipe
  if (!options.resume.empty()) arguments.push_back("--resume=" + options.resume);
  if (options.data_changed) arguments.push_back("--data-changed");
  if (options.overwrite) arguments.push_back("--overwrite");
  // The master starts on this machine at the same time. A master that is silent for longer is
  // stopped or dead.
  if (std::string(role) != "master") arguments.insert(arguments.end(), {"--join-timeout", "10"});
  if (index >= 0) arguments.insert(arguments.end(), {"--index", absl::StrCat(index)});
  if (options.log_format == report::LogFormat::JSON)
    arguments.insert(arguments.end(), {"--log-format", "json"});
  for (const std::string& set : AssignmentsOf(options))
    arguments.insert(arguments.end(), {"--set", set});
  return arguments;
}

absl::Status StartRoles(const RunOptions& options, int num_trainers, const std::string& master,
                        const FolderLock& lock, Supervisor& supervisor) {
  const auto arguments_of = [&](const char* role, int index) {
    return RoleArguments(role, options, num_trainers, master, index);
  };
  RETURN_IF_ERROR(supervisor.Start("master-0", arguments_of("master", -1)));
  for (int i = 0; i < options.num_ps; ++i)
    RETURN_IF_ERROR(supervisor.Start(absl::StrCat("ps-", i), arguments_of("ps", i)));
  for (int i = 0; i < options.num_workers; ++i)
    RETURN_IF_ERROR(supervisor.Start(absl::StrCat("worker-", i), arguments_of("worker", i)));
  for (int i = 0; i < num_trainers; ++i) {
    std::vector<std::string> arguments = arguments_of("trainer", i);
    const bool writes = i == 0;
    if (writes) arguments.insert(arguments.end(), {"--out-lock", absl::StrCat(lock.fd())});
    RETURN_IF_ERROR(
        supervisor.Start(absl::StrCat("trainer-", i), arguments, writes ? lock.fd() : -1));
  }
  return absl::OkStatus();
}

}  // namespace

int Launch(const RunOptions& options, const tasks::Kinds& kinds) {
  if (absl::Status status = CheckOutPath(options); !status.ok()) return ReportError(status);
  if (options.local) return RunLocal(options, kinds);
  CatchSignals();
  ForgetScheduler();  // the roles are this process's to number
  const auto job = LoadJobOf(options, kinds);
  if (!job.ok()) return ReportError(job.status());
  const int num_trainers = job::NumTrainers(*job);
  if (const auto place = job::DeviceOf(*job, 0, num_trainers); !place.ok())
    return ReportError(place.status());
  const auto secret = SecretOfLaunch(options.secret_file);
  if (!secret.ok()) return ReportError(secret.status());
  const auto lock = FolderLock::Take(options.out, "launch");
  if (!lock.ok()) return ReportError(lock.status());
  if (const absl::Status older = CheckOlderRun(options); !older.ok()) return ReportError(older);
  if (IsFinished(options)) {
    PrintFinished(options.out);
    return 0;
  }
  const Stopwatch watch;
  // Reserved before any role starts and held until all have ended. Otherwise roles could take
  // another owner of the port for their master.
  const auto master =
      rpc::HeldAddress::HoldAlone(options.master.empty() ? "127.0.0.1:0" : options.master);
  if (!master.ok()) return ReportError(master.status());
  Supervisor supervisor(&*secret);
  if (absl::Status status =
          StartRoles(options, num_trainers, (*master)->text(), **lock, supervisor);
      !status.ok())
    return ReportError(status);
  const Supervisor::Outcome outcome = supervisor.Run([&lock] { (*lock)->MarkEnding(); });
  if (outcome.exit_code == 0) return 0;
  ReportOutcome(outcome);
  SummariseFailure(options.out, *job, options.num_ps, watch.Seconds(), outcome.exit_code);
  return outcome.exit_code;
}

}  // namespace tandem::cli
