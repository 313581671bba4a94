#include "trainer/bench/sync/roles.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/master/client.h"
#include "trainer/bench/members/capped_link.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/way.h"
#include "trainer/cli/process/failure.h"
#include "trainer/comm/host/cpu_group.h"
#include "trainer/comm/net/tcp_group.h"

namespace tandem::bench {

namespace {

constexpr int kFewest = 5, kMost = 400;  // synchronisations of a point
constexpr uint64_t kWarm = kSyncBatches;
constexpr size_t kSampledRows = 32;
constexpr double kRounding = 1e-4;  // of f32 sums and squares, over all steps

double Seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The time that all threads of a process of this machine have computed.
double CpuSecondsOf(int64_t pid) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  return clock_getcpuclockid(static_cast<pid_t>(pid), &clock) == 0 ? Seconds(clock) : 0;
}

// Where others reach this process. Members have different places: servers first.
absl::StatusOr<std::string> HostOf(const SyncPoint& point, int place) {
  if (point.link() != SyncPoint::CAPPED) return std::string("127.0.0.1");
  return JoinHub(point.bits_per_second(), place);
}

// A trainer of a point.
class SyncTrainer {
 public:
  // `host`: where other trainers reach this one.
  SyncTrainer(const SyncPoint& point, const std::string& host, rpc::MasterClient& master)
      : point_(point), host_(host), master_(master), rank_(master.assignment().rank) {}

  absl::StatusOr<SyncFigures> Run();

 private:
  absl::StatusOr<std::unique_ptr<comm::QueuedGroup>> MakeGroup(const std::string& name);
  absl::Status MakeWay();
  absl::Status Meet() {
    return meeting_->Await(meeting_->Barrier({}), absl::Now() + kBenchTimeout);
  }
  // One synchronisation, from the gradients of all trainers on.
  absl::Status Once(SyncFigures* figures);
  absl::StatusOr<int> ChooseNumber(const SyncFigures& warm);
  // By server, since the beginning: CPU time, and bytes from and to this trainer.
  std::vector<double> ServerSeconds() const;
  std::vector<double> ServerBytes() const;
  rpc::Traffic Moved() const {
    return point_.link() == SyncPoint::CAPPED ? CableTraffic(getpid()) : way_->traffic();
  }
  double ShareOfRows() const;
  absl::StatusOr<std::string> FindWrongWeight();

  const SyncPoint point_;
  const std::string host_;
  rpc::MasterClient& master_;
  const uint32_t rank_;
  std::shared_ptr<comm::Endpoint> endpoint_;
  std::unique_ptr<comm::QueuedGroup> meeting_, group_;
  std::unique_ptr<ps::RemoteClient> client_;
  std::unique_ptr<SyncWay> way_;
  uint64_t num_steps_ = 0;
};

absl::StatusOr<std::unique_ptr<comm::QueuedGroup>> SyncTrainer::MakeGroup(const std::string& name) {
  const auto rank = static_cast<int>(rank_), size = static_cast<int>(point_.trainers());
  const std::string& token = master_.assignment().job_token;
  const absl::Time deadline = absl::Now() + kBenchTimeout;
  if (point_.link() == SyncPoint::SHM) {
    return comm::CpuGroup::Create({&master_.store(), token, name, rank, size, kBenchTimeout},
                                  deadline);
  }
  if (endpoint_ == nullptr) {
    ASSIGN_OR_RETURN(endpoint_,
                     comm::Endpoint::Open(absl::StrCat(host_, ":0"), /*advertise=*/"", token));
  }
  return comm::TcpGroup::Create({.store = &master_.store(),
                                 .endpoint = endpoint_,
                                 .name = name,
                                 .rank = rank,
                                 .size = size,
                                 .timeout = kBenchTimeout},
                                /*name=*/"", deadline);
}

absl::Status SyncTrainer::MakeWay() {
  ASSIGN_OR_RETURN(meeting_, MakeGroup("meeting"));
  if (point_.way() == SyncPoint::RING) {
    ASSIGN_OR_RETURN(group_, MakeGroup("ring"));
    ASSIGN_OR_RETURN(way_, MakeRingWay(point_, group_.get()));
    return absl::OkStatus();
  }
  const rpc::Assignment& assignment = master_.assignment();
  std::vector<std::string> addresses;
  for (const rpc::Member& member : assignment.MembersOf(PS)) addresses.push_back(member.address);
  client_ = std::make_unique<ps::RemoteClient>(
      addresses, ps::Router::FromShardMap(assignment.shard_map), master_.MakeHeader(),
      point_.trainers(),
      ps::RemoteClientOptions{.timeout = kBenchTimeout,
                              .shared_memory = point_.link() == SyncPoint::SHM,
                              .credentials = master_.credentials()});
  ASSIGN_OR_RETURN(way_, MakeServerWay(point_, rank_, client_.get()));
  return absl::OkStatus();
}

absl::Status SyncTrainer::Once(SyncFigures* figures) {
  way_->MakeGradients(++num_steps_);
  RETURN_IF_ERROR(Meet());
  const double cpu = Seconds(CLOCK_PROCESS_CPUTIME_ID);
  figures->add_begin(MonotonicSeconds());
  RETURN_IF_ERROR(way_->Synchronise(num_steps_));
  figures->add_end(MonotonicSeconds());
  figures->set_cpu_seconds(figures->cpu_seconds() + Seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
  return absl::OkStatus();
}

// Rank 0 chooses, so that all make as many.
absl::StatusOr<int> SyncTrainer::ChooseNumber(const SyncFigures& warm) {
  if (rank_ == 0) {
    const int last = warm.end_size() - 1;
    const double seconds = std::max(1e-6, warm.end(last) - warm.begin(last));
    const int number = std::clamp(static_cast<int>(point_.seconds() / seconds), kFewest, kMost);
    RETURN_IF_ERROR(master_.store().Set("number", absl::StrCat(number)));
  }
  ASSIGN_OR_RETURN(const std::string number,
                   master_.store().Get("number", absl::Now() + kBenchTimeout));
  return std::stoi(number);
}

std::vector<double> SyncTrainer::ServerSeconds() const {
  std::vector<double> seconds;
  for (const rpc::Member& server : master_.assignment().MembersOf(PS))
    seconds.push_back(CpuSecondsOf(server.pid));
  return seconds;
}

// A cable counts all trainers' bytes, so rank 0 tells them.
std::vector<double> SyncTrainer::ServerBytes() const {
  std::vector<double> bytes;
  const bool cables = point_.link() == SyncPoint::CAPPED;
  if (client_ == nullptr || (cables && rank_ > 0)) return bytes;
  for (const rpc::Member& server : master_.assignment().MembersOf(PS)) {
    const rpc::Traffic traffic = cables ? CableTraffic(server.pid) : client_->traffic(server.rank);
    bytes.push_back(static_cast<double>(traffic.sent + traffic.received));
  }
  return bytes;
}

double SyncTrainer::ShareOfRows() const {
  size_t rows = 0;
  for (uint64_t batch = 0; batch < kSyncBatches; ++batch)
    rows += IdsOf(point_, rank_, batch).size();
  return static_cast<double>(rows) / static_cast<double>(kSyncBatches * RowsOf(point_));
}

// Compares a sample of rows with what the steps make of them.
absl::StatusOr<std::string> SyncTrainer::FindWrongWeight() {
  const std::vector<uint64_t> used = IdsOf(point_, rank_, /*step=*/1);
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < std::min(kSampledRows, used.size()); ++i)
    ids.push_back(used[i * used.size() / std::min(kSampledRows, used.size())]);
  ASSIGN_OR_RETURN(const std::vector<float> rows, way_->Read(ids));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto column = static_cast<uint32_t>(i * 7 % point_.dim());
    const double wanted = WeightAfter(point_, ids[i], column, num_steps_),
                 found = rows[i * point_.dim() + column];
    if (std::abs(found - wanted) <= kRounding * std::abs(wanted)) continue;
    return absl::StrCat("row ", ids[i], " column ", column, " is ", found, ", the steps make ",
                        wanted);
  }
  return std::string();
}

absl::StatusOr<SyncFigures> SyncTrainer::Run() {
  RETURN_IF_ERROR(MakeWay());
  SyncFigures warm, figures;
  for (uint64_t i = 0; i < kWarm; ++i) RETURN_IF_ERROR(Once(&warm));
  figures.set_first_seconds(warm.end(0) - warm.begin(0));
  ASSIGN_OR_RETURN(const int number, ChooseNumber(warm));
  RETURN_IF_ERROR(Meet());  // no trainer is in a warm synchronisation any more
  const rpc::Traffic traffic = Moved();
  const std::vector<double> server_seconds = ServerSeconds(), server_bytes = ServerBytes();
  for (int i = 0; i < number; ++i) RETURN_IF_ERROR(Once(&figures));
  RETURN_IF_ERROR(Meet());  // servers have done all now
  const rpc::Traffic moved = Moved() - traffic;
  figures.set_sent(static_cast<double>(moved.sent) / number);
  figures.set_received(static_cast<double>(moved.received) / number);
  figures.set_cpu_seconds(figures.cpu_seconds() / number);
  const std::vector<double> seconds_now = ServerSeconds(), bytes_now = ServerBytes();
  for (size_t s = 0; s < bytes_now.size(); ++s)
    figures.add_to_server((bytes_now[s] - server_bytes[s]) / number);
  for (size_t s = 0; rank_ == 0 && s < seconds_now.size(); ++s)
    figures.add_server_cpu_seconds((seconds_now[s] - server_seconds[s]) / number);
  figures.set_share(ShareOfRows());
  ASSIGN_OR_RETURN(*figures.mutable_wrong(), FindWrongWeight());
  return figures;
}

}  // namespace

int RunSyncServer(const SyncPoint& point, const cli::RoleOptions& options) {
  const auto host = HostOf(point, options.index);
  if (!host.ok()) return cli::ReportError(host.status());
  return RunBenchServer(options, {.shared_memory = point.link() == SyncPoint::SHM, .host = *host});
}

int RunSyncTrainer(const SyncPoint& point, const cli::RoleOptions& options) {
  const auto host = HostOf(point, static_cast<int>(point.servers()) + options.index);
  if (!host.ok()) return cli::ReportError(host.status());
  return RunBenchTrainer(options, [&](rpc::MasterClient& master) -> absl::StatusOr<MemberReport> {
    MemberReport report;
    ASSIGN_OR_RETURN(*report.mutable_sync(), SyncTrainer(point, *host, master).Run());
    return report;
  });
}

}  // namespace tandem::bench
