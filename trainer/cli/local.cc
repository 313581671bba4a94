// `tandem launch --local`: runs the whole job in this process. Tables live here and replicas are
// threads. Every bit equals that of the distributed run with as many trainers.
#include <cstdio>
#include <thread>

#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "ps/client/idle_client.h"
#include "ps/local/local_client.h"
#include "ps/server/table_host.h"
#include "rpc/store/store.h"
#include "trainer/cli/client_of_job.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/load_job.h"
#include "trainer/cli/process/exit_code.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/folder_lock.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/report.h"
#include "trainer/cli/roles/member.h"
#include "trainer/cli/run_folder.h"
#include "trainer/cli/version.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_options.h"
#include "trainer/job/layout.h"
#include "trainer/loop/train_loop.h"

namespace tandem::cli {

namespace {

// Runs one replica, with a group for its device if it has a device and peers.
absl::StatusOr<report::RunSummary> RunOne(const Job& job, const tasks::JobData& data,
                                          rpc::Store* store, loop::ReplicaEnvironment environment) {
  comm::ProcessGroup& group = *environment.group;
  ASSIGN_OR_RETURN(const job::ComputePlace place, job::DeviceOf(job, group.rank(), group.size()));
  environment.device = place.device;
  if (environment.output != nullptr) environment.program = ThisProgramOn(place.device);
  comm::DeviceGroup device_group;
  if (place.device.is_cuda() && group.size() > 1) {
    auto made = job::MakeDeviceGroup(job, place, &group, store);
    if (!made.ok()) {
      group.Abort(made.status());
      return made.status();
    }
    device_group = *std::move(made);
    environment.device_group = device_group.group.get();
    if (environment.output != nullptr) environment.output->Note(device_group.note);
  }
  return loop::RunReplica(job, data, environment);
}

// The clients of one trainer. `owned` keeps what they need.
absl::StatusOr<ps::ClientStack> LocalClientsOf(const Job& job, ps::TableHost& host,
                                               comm::ProcessGroup& trainers,
                                               std::unique_ptr<comm::ProcessGroup>* owned) {
  ASSIGN_OR_RETURN(comm::ProcessGroup* const among, ClientsAmong(job, trainers, owned));
  if (among == nullptr) return ps::ClientStack(std::make_unique<ps::IdleClient>());
  const int client = job::ClientOf(job, trainers.rank());
  auto local = std::make_unique<ps::LocalClient>(host, static_cast<uint32_t>(client),
                                                 static_cast<uint32_t>(job::NumClients(job)),
                                                 job::ConsistencyOf(job));
  ps::MergedPushes& pushes = *local;
  ASSIGN_OR_RETURN(auto merged,
                   MergePushes(job, std::move(local), pushes, *among, /*num_servers=*/0));
  return ClientOfJob(job, std::move(merged), client);
}

absl::StatusOr<report::RunSummary> RunReplicas(const Job& job, const tasks::JobData& data,
                                               int num_trainers,
                                               const checkpoint::Checkpoint* resumed,
                                               report::RunOutput* output) {
  ps::TableHost host(job.ps().threads());
  rpc::MemoryStore store;
  auto groups = comm::ThreadGroup::Create(num_trainers, "trainers",
                                          absl::Seconds(job.runtime().timeout_seconds()));
  std::vector<absl::StatusOr<report::RunSummary>> results(num_trainers,
                                                          absl::UnknownError("not run"));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_trainers; ++rank) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<comm::ProcessGroup> owned;
      const auto clients = LocalClientsOf(job, host, *groups[rank], &owned);
      if (!clients.ok()) {
        results[rank] = clients.status();
        return;
      }
      results[rank] = RunOne(job, data, &store,
                             {.resume = resumed,
                              .group = groups[rank].get(),
                              .clients = *clients,
                              .output = rank == 0 ? output : nullptr,
                              .num_servers = 0,
                              .stop_requested = SignalReceived});
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Find the replica that failed by itself, not one that was aborted because of it.
  for (const auto& result : results) {
    if (!result.ok() && result.status().code() != absl::StatusCode::kAborted) return result;
  }
  return results[0];
}

absl::Status Run(const RunOptions& options, const tasks::Kinds& kinds) {
  ASSIGN_OR_RETURN(const Job job, LoadJobOf(options, kinds));
  const int num_trainers = job::NumTrainers(job);
  ASSIGN_OR_RETURN(const job::ComputePlace first, job::DeviceOf(job, 0, num_trainers));
  ASSIGN_OR_RETURN(const auto lock, FolderLock::Take(options.out, "launch"));
  const SignalWatch ending([] { return false; }, [&lock] { lock->MarkEnding(); });
  RETURN_IF_ERROR(CheckOlderRun(options));
  if (IsFinished(options)) {
    PrintFinished(options.out);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<tasks::JobData> data, kinds.ReadData(job));
  ASSIGN_OR_RETURN(const std::optional<checkpoint::Checkpoint> saved,
                   CheckpointToResume(options, job, *data, kinds.models()));
  const checkpoint::Checkpoint* resumed = saved ? &*saved : nullptr;
  ASSIGN_OR_RETURN(auto output, OpenRunOutput(options, *data, resumed));
  output->Note(Banner(job, *data, 0, first.device));
  const Stopwatch watch;
  absl::StatusOr<report::RunSummary> summary =
      RunReplicas(job, *data, num_trainers, resumed, output.get());
  if (!summary.ok()) {
    SummariseFailure(options.out, job, /*num_ps=*/0, watch.Seconds(), ExitCodeOf(summary.status()));
    return summary.status();
  }
  if (options.log_format == report::LogFormat::TEXT) PrintReport(*summary, options.out);
  return summary->status == report::kStopped ? StoppedStatus(summary->steps) : absl::OkStatus();
}

}  // namespace

int RunLocal(const RunOptions& options, const tasks::Kinds& kinds) {
  CatchSignals();
  const absl::Status status = Run(options, kinds);
  return status.ok() ? 0 : ReportError(status);
}

}  // namespace tandem::cli
