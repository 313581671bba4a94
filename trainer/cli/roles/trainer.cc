// `tandem trainer`: one replica of the dense layers. Collectives keep the replicas equal; the
// sparse rows live on the parameter servers.
#include <algorithm>
#include <cstdio>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "ps/client/idle_client.h"
#include "ps/client/remote_client.h"
#include "trainer/cli/client_of_job.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/load_job.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/folder_lock.h"
#include "trainer/cli/process/job_secret.h"
#include "trainer/cli/process/scheduler.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/report.h"
#include "trainer/cli/roles/job_start.h"
#include "trainer/cli/roles/member.h"
#include "trainer/cli/run_folder.h"
#include "trainer/cli/version.h"
#include "trainer/comm/net/trainers_group.h"
#include "trainer/job/job_options.h"
#include "trainer/job/layout.h"
#include "trainer/loop/train_loop.h"
#include "trainer/parallel/mesh.h"

namespace tandem::cli {

namespace {

// The objects that a failure of the job must wake. Each is set as soon as it exists.
struct Abortable {
  absl::Mutex mutex;
  absl::Status reason ABSL_GUARDED_BY(mutex);
  ps::RowClient* client ABSL_GUARDED_BY(mutex) = nullptr;
  std::vector<comm::ProcessGroup*> groups ABSL_GUARDED_BY(mutex);

  void Abort(absl::Status status) {
    absl::MutexLock lock(&mutex);
    reason = status;
    if (client != nullptr) client->Abort(status);
    for (comm::ProcessGroup* group : groups) group->Abort(status);
  }
  // Returns the reason if the job has failed already.
  absl::Status Set(ps::RowClient* new_client) {
    absl::MutexLock lock(&mutex);
    client = new_client;
    return reason;
  }
  absl::Status Add(comm::ProcessGroup* group) {
    absl::MutexLock lock(&mutex);
    groups.push_back(group);
    return reason;
  }
  void Clear() {
    absl::MutexLock lock(&mutex);
    client = nullptr;
    groups.clear();
  }
};

WireFormat WireOf(ParameterServer::Wire::Format format) {
  switch (format) {
    case ParameterServer::Wire::BF16:
      return WIRE_BF16;
    case ParameterServer::Wire::F16:
      return WIRE_F16;
    case ParameterServer::Wire::INT8:
      return WIRE_INT8;
    default:
      return WIRE_F32;
  }
}

std::unique_ptr<ps::RemoteClient> MakeClient(const rpc::MasterClient& master, const Job& job) {
  const rpc::Assignment& assignment = master.assignment();
  RequestHeader header = master.MakeHeader();
  header.mutable_sender()->set_rank(
      static_cast<uint32_t>(job::ClientOf(job, static_cast<int>(assignment.rank))));
  std::vector<std::string> addresses;
  for (const rpc::Member& member : assignment.MembersOf(PS)) addresses.push_back(member.address);
  return std::make_unique<ps::RemoteClient>(
      addresses, ps::Router::FromShardMap(assignment.shard_map), std::move(header),
      static_cast<uint32_t>(job::NumClients(job)),
      ps::RemoteClientOptions{.timeout = absl::Seconds(job.runtime().timeout_seconds()),
                              .consistency = job::ConsistencyOf(job),
                              .wire = WireOf(job.ps().wire()),
                              .shared_memory = job.ps().transport() == ParameterServer::AUTO,
                              .credentials = master.credentials()});
}

// The clients of one trainer, and the innermost one if it reaches the servers.
struct RemoteClients {
  ps::ClientStack clients;
  const ps::RemoteClient* reached = nullptr;
};

// `among`: ClientsAmong the trainers.
absl::StatusOr<RemoteClients> RemoteClientsOf(const rpc::MasterClient& master, const Job& job,
                                              comm::ProcessGroup* among) {
  if (among == nullptr) return RemoteClients{std::make_unique<ps::IdleClient>(), nullptr};
  const int num_ps = static_cast<int>(master.assignment().MembersOf(PS).size());
  auto remote = MakeClient(master, job);
  ps::RemoteClient& reached = *remote;
  ASSIGN_OR_RETURN(auto merged, MergePushes(job, std::move(remote), reached, *among, num_ps));
  const int client = job::ClientOf(job, static_cast<int>(master.assignment().rank));
  return RemoteClients{ClientOfJob(job, std::move(merged), client), &reached};
}

// A note for the user if servers of this host were not reached through shared memory; empty: none.
std::string SharedMemoryNote(const ps::RemoteClient* client, const rpc::Assignment& assignment,
                             const Job& job) {
  if (client == nullptr) return "";
  int num_here = 0;
  for (const rpc::Member& server : assignment.MembersOf(PS)) {
    num_here += server.host == assignment.MembersOf(TRAINER)[assignment.rank].host;
  }
  if (job.ps().transport() != ParameterServer::AUTO || job.placement() != Job::PS ||
      client->num_shared() >= num_here)
    return "";
  return absl::StrCat("rows of ", num_here - client->num_shared(), " of ", num_here,
                      " servers on this host went over gRPC: no memory could be shared with them");
}

// Pushes are merged through memory that all trainers share.
absl::Status CheckHosts(const Job& job, const std::vector<int>& memory) {
  const bool apart =
      std::any_of(memory.begin(), memory.end(), [](int place) { return place != 0; });
  if (!apart || !job.ps().merge_pushes()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "ps.merge_pushes is true; allowed: false with trainers that share no memory");
}

// Tells the user about ranks that cut layers over a network.
std::vector<std::string> NotesOnHosts(const Job& job, const std::vector<std::string>& hosts,
                                      const std::vector<int>& memory) {
  std::vector<std::string> notes;
  const parallel::MeshShape shape = job::MeshShapeOf(job);
  for (int first = 0; first < shape.size(); first += shape.tp) {
    std::vector<std::string> of_group;
    bool apart = false;
    for (const int r : MembersOf(parallel::Axis::TP, shape, first)) {
      apart = apart || memory[r] != memory[first];
      if (std::find(of_group.begin(), of_group.end(), hosts[r]) == of_group.end())
        of_group.push_back(hosts[r]);
    }
    if (!apart) continue;
    notes.push_back(absl::StrCat("warning: tensor-parallel trainers ", first, " to ",
                                 first + shape.tp - 1, " stand on several hosts (",
                                 absl::StrJoin(of_group, ", "),
                                 "): every layer waits for the network"));
  }
  return notes;
}

// Trainers of one machine take its GPUs in the order of their ranks.
absl::StatusOr<job::ComputePlace> PlaceOf(const rpc::Assignment& assignment, const Job& job) {
  const std::vector<rpc::Member> trainers = assignment.MembersOf(TRAINER);
  int place = 0, here = 0;
  for (const rpc::Member& trainer : trainers) {
    if (trainer.host != trainers[assignment.rank].host) continue;
    place += trainer.rank < assignment.rank;
    ++here;
  }
  return job::DeviceOf(job, place, here);
}

// Only rank 0 writes into the folder; null for other ranks.
absl::StatusOr<std::unique_ptr<FolderLock>> LockOutput(const RoleOptions& options, uint32_t rank) {
  if (rank != 0) return nullptr;
  ASSIGN_OR_RETURN(auto lock, options.out_lock >= 0
                                  ? FolderLock::Adopt(options.out, options.out_lock)
                                  : FolderLock::Take(options.out, "trainer-0"));
  RETURN_IF_ERROR(CheckOlderRun(options));
  return lock;
}

// Proves that --out is one folder for all roles. Collective over trainers and servers.
absl::Status ShareOutput(const RoleOptions& options, const Job& job, rpc::MasterClient& master) {
  const absl::Time deadline = absl::Now() + absl::Seconds(job.runtime().timeout_seconds());
  return master.assignment().rank == 0 ? ProveSharedFolder(master, options.out, deadline)
                                       : AnswerSharedFolder(master, options.out, deadline);
}

// Ends a run that has nothing left to do.
absl::Status EndFinished(const RoleOptions& options, rpc::MasterClient& master) {
  if (master.assignment().rank != 0) return absl::OkStatus();
  if (options.log_format == report::LogFormat::TEXT) PrintFinished(options.out);
  return TellLoaded(master);
}

// `health` is the role's; null: it answers no health checks.
absl::Status Train(const RoleOptions& options, const tasks::Kinds& kinds, const Job& job,
                   rpc::MasterClient& master, rpc::Server* health, Abortable& abortable) {
  const rpc::Assignment& assignment = master.assignment();
  const int num_trainers = static_cast<int>(assignment.MembersOf(TRAINER).size());
  ASSIGN_OR_RETURN(const job::ComputePlace place, PlaceOf(assignment, job));
  ASSIGN_OR_RETURN(const auto lock, LockOutput(options, assignment.rank));
  const SignalWatch ending([] { return false; },
                           [&lock] {
                             if (lock) lock->MarkEnding();
                           });
  RETURN_IF_ERROR(ShareOutput(options, job, master));
  if (IsFinished(options)) return EndFinished(options, master);
  ASSIGN_OR_RETURN(const std::unique_ptr<tasks::JobData> data, kinds.ReadData(job));
  const int num_ps = static_cast<int>(assignment.MembersOf(PS).size());
  ASSIGN_OR_RETURN(const std::optional<checkpoint::Checkpoint> saved,
                   CheckpointToResume(options, job, *data, kinds.models()));
  const checkpoint::Checkpoint* resumed = saved ? &*saved : nullptr;
  std::unique_ptr<report::RunOutput> output;
  if (assignment.rank == 0) {
    ASSIGN_OR_RETURN(output, OpenRunOutput(options, *data, resumed));
    output->Note(Banner(job, *data, num_ps, place.device));
  }
  const absl::Duration timeout = absl::Seconds(job.runtime().timeout_seconds());
  comm::TrainersGroupOptions group_options{.store = &master.store(),
                                           .token = assignment.job_token,
                                           .name = "trainers",
                                           .rank = static_cast<int>(assignment.rank),
                                           .timeout = timeout,
                                           .hosts = {},
                                           .listen = options.listen,
                                           .advertise = options.advertise,
                                           .towards = options.master};
  for (const rpc::Member& trainer : assignment.MembersOf(TRAINER))
    group_options.hosts.push_back(trainer.host);
  ASSIGN_OR_RETURN(const comm::TrainersGroup made,
                   comm::MakeTrainersGroup(group_options, absl::Now() + timeout));
  comm::ProcessGroup* const group = made.group.get();
  RETURN_IF_ERROR(CheckHosts(job, made.memory));
  if (output != nullptr) {
    for (const std::string& note : NotesOnHosts(job, group_options.hosts, made.memory))
      output->Note(note);
  }
  std::unique_ptr<comm::ProcessGroup> owned;
  ASSIGN_OR_RETURN(comm::ProcessGroup* const among, ClientsAmong(job, *group, &owned));
  ASSIGN_OR_RETURN(const RemoteClients remote, RemoteClientsOf(master, job, among));
  const ps::ClientStack& clients = remote.clients;
  comm::DeviceGroup device_group;
  const absl::Cleanup clear = [&abortable] { abortable.Clear(); };
  RETURN_IF_ERROR(abortable.Set(clients.rows));
  RETURN_IF_ERROR(abortable.Add(group));
  if (place.device.is_cuda() && num_trainers > 1) {
    ASSIGN_OR_RETURN(device_group, job::MakeDeviceGroup(job, place, group, &master.store()));
    RETURN_IF_ERROR(abortable.Add(device_group.group.get()));
    if (output != nullptr) output->Note(device_group.note);
  }
  const auto summary = loop::RunReplica(
      job, *data,
      {.resume = resumed,
       .group = group,
       .clients = clients,
       .output = output.get(),
       .device = place.device,
       .device_group = device_group.group.get(),
       .num_servers = num_ps,
       .program = output != nullptr ? ThisProgramOn(place.device) : report::RunProgram(),
       .stop_requested = SignalReceived,
       .on_ready = [&]() -> absl::Status {
         if (health != nullptr) health->SetReady();
         return assignment.rank == 0 ? TellLoaded(master) : absl::OkStatus();
       },
       .master = &master});
  RETURN_IF_ERROR(summary.status());
  if (const std::string note = SharedMemoryNote(remote.reached, assignment, job);
      output != nullptr && !note.empty())
    output->Note(note);
  if (output != nullptr && options.log_format == report::LogFormat::TEXT)
    PrintReport(*summary, options.out);
  return summary->status == report::kStopped ? StoppedStatus(summary->steps) : absl::OkStatus();
}

}  // namespace

int RunTrainer(const RoleOptions& options, const tasks::Kinds& kinds) {
  Abortable abortable;
  rpc::Server health;  // answers health checks alone, so it needs no secret
  std::unique_ptr<rpc::MasterClient> master;
  const absl::Status status = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckOutPath(options));
    if (!options.advertise.empty() && options.listen.empty())
      return absl::InvalidArgumentError("--advertise goes with --listen, whose port others reach");
    ASSIGN_OR_RETURN(const rpc::Credentials credentials,
                     CredentialsOfRole(AccessOf(options), "trainer"));
    ASSIGN_OR_RETURN(const Job job, LoadJobOf(options, kinds));
    RETURN_IF_ERROR(CheckWorldSize(job::NumTrainers(job)));
    if (!options.health.empty()) RETURN_IF_ERROR(health.Start(options.health));
    ASSIGN_OR_RETURN(
        master, Join(options, TRAINER, job, credentials, options.listen,
                     [&abortable](absl::Status reason) { abortable.Abort(std::move(reason)); }));
    return Train(options, kinds, job, *master, options.health.empty() ? nullptr : &health,
                 abortable);
  }();
  return LeaveJob(TRAINER, options.index, master.get(), status);
}

}  // namespace tandem::cli
