// `tandem bench pull-push`: rows per second between clients and parameter servers in separate
// processes, compared with raw streams between the same processes. This process starts them, is
// their master and prints the clients' reports.
#include <algorithm>
#include <cstdio>
#include <google/protobuf/text_format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/base/status_macros.h"
#include "ps/wire/wire_codec.h"
#include "rpc/master/service.h"
#include "rpc/server.h"
#include "trainer/bench/batches.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/pull_push_roles.h"
#include "trainer/bench/raw_bytes.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/process/supervisor.h"
#include "trainer/report/json.h"

namespace tandem::bench {

namespace {

// The reports of the clients of one case.
class Reports {
 public:
  void Register(rpc::Server& server) {
    server.Handle("tandem.BenchService", "Report", rpc::MethodKind::UNARY,
                  [this](rpc::Payload request, rpc::Reply reply) {
                    const std::string_view bytes = request.Flatten();
                    PullPushFigures figures;
                    if (!figures.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
                      return reply(absl::InvalidArgumentError("malformed report"));
                    }
                    {
                      absl::MutexLock lock(&mutex_);
                      figures_.push_back(std::move(figures));
                    }
                    reply(rpc::Payload());
                  });
  }
  std::vector<PullPushFigures> Take() {
    absl::MutexLock lock(&mutex_);
    return std::move(figures_);
  }

 private:
  absl::Mutex mutex_;
  std::vector<PullPushFigures> figures_ ABSL_GUARDED_BY(mutex_);
};

// The printed line of a case: medians over its repetitions.
struct Measured {
  PullPushCase bench;
  double rows_per_second = 0;   // looked up
  double bytes_per_second = 0;  // ids and rows
  double p50_seconds = 0, p99_seconds = 0;
  // Parts of a client's step: waits, and the time between them.
  double pull_seconds = 0, own_seconds = 0, push_seconds = 0;
  double pull_ratio = 0, push_ratio = 0, ratio = 0;  // relative to raw streams; 0: not measured
  double raw_bytes_per_second = 0;
  std::string wrong;
};

const char* ModeName(const PullPushCase& bench) {
  switch (bench.mode()) {
    case PullPushCase::PULL:
      return "pull";
    case PullPushCase::PUSH:
      return "push";
    case PullPushCase::POOLED:
      return "pooled";
    case PullPushCase::HYBRID:
      return "hybrid";
    case PullPushCase::HYBRID_POOLED:
      return "hybrid_pooled";
    default:
      return "pull_push";
  }
}
PullPushCase::Mode ModeOf(const std::string& name) {
  PullPushCase bench;
  for (const auto mode : {PullPushCase::PULL, PullPushCase::PUSH, PullPushCase::POOLED,
                          PullPushCase::HYBRID, PullPushCase::HYBRID_POOLED}) {
    bench.set_mode(mode);
    if (name == ModeName(bench)) return mode;
  }
  return PullPushCase::PULL_PUSH;
}
const char* PathName(const PullPushCase& bench) {
  return bench.path() == PullPushCase::SHM ? "shm" : "grpc";
}
const char* IdsName(const PullPushCase& bench) {
  return bench.ids() == PullPushCase::ZIPF ? "zipf" : "uniform";
}

// One repetition of all clients.
struct Repetition {
  double seconds = 0;
  double pull_bytes = 0, push_bytes = 0;
  double pull_rate = 0, push_rate = 0;  // bytes per second while waiting for pulls or for pushes
  std::vector<double> raw_pull_rates, raw_push_rates;             // by kRawWindows
  double client_seconds = 0, pull_seconds = 0, push_seconds = 0;  // sums over all clients
};

void AddEach(const google::protobuf::RepeatedField<double>& added, std::vector<double>* sums) {
  sums->resize(static_cast<size_t>(added.size()));
  for (size_t i = 0; i < sums->size(); ++i) (*sums)[i] += added[static_cast<int>(i)];
}

Repetition Together(const std::vector<PullPushFigures>& clients, int number) {
  Repetition all;
  double begin = clients[0].repetitions(number).begin(), end = 0;
  for (const PullPushFigures& client : clients) {
    const PullPushRepetition& mine = client.repetitions(number);
    begin = std::min(begin, mine.begin());
    end = std::max(end, mine.end());
    all.pull_bytes += mine.pull_bytes();
    all.push_bytes += mine.push_bytes();
    if (mine.pull_seconds() > 0) all.pull_rate += mine.pull_bytes() / mine.pull_seconds();
    if (mine.push_seconds() > 0) all.push_rate += mine.push_bytes() / mine.push_seconds();
    AddEach(mine.raw_pull(), &all.raw_pull_rates);
    AddEach(mine.raw_push(), &all.raw_push_rates);
    all.client_seconds += mine.end() - mine.begin();
    all.pull_seconds += mine.pull_seconds();
    all.push_seconds += mine.push_seconds();
  }
  all.seconds = end - begin;
  return all;
}

Measured Summarise(const PullPushCase& bench, const std::vector<PullPushFigures>& clients) {
  Measured m;
  m.bench = bench;
  std::vector<double> rows, bytes, steps, pull_ratios, push_ratios, ratios, raw, pulls, owns,
      pushes;
  const auto num_steps = static_cast<double>(clients[0].steps() * clients.size());
  std::vector<Repetition> repetitions;
  std::vector<std::vector<double>> raw_pulls, raw_pushes;
  for (int i = 0; i < static_cast<int>(bench.repetitions()); ++i) {
    repetitions.push_back(Together(clients, i));
    raw_pulls.push_back(repetitions.back().raw_pull_rates);
    raw_pushes.push_back(repetitions.back().raw_push_rates);
  }
  const std::vector<double> raw_pull_rates = RatesOfBestWindow(raw_pulls),
                            raw_push_rates = RatesOfBestWindow(raw_pushes);
  for (size_t i = 0; i < repetitions.size(); ++i) {
    const Repetition& r = repetitions[i];
    rows.push_back(static_cast<double>(clients[0].ids_per_step()) * num_steps / r.seconds);
    bytes.push_back((r.pull_bytes + r.push_bytes) / r.seconds);
    const double pulling = r.pull_bytes > 0 ? r.pull_bytes / r.pull_rate : 0,
                 pushing = r.push_bytes > 0 ? r.push_bytes / r.push_rate : 0;
    const double raw_pulling = r.pull_bytes > 0 ? r.pull_bytes / raw_pull_rates[i] : 0;
    const double raw_pushing = r.push_bytes > 0 ? r.push_bytes / raw_push_rates[i] : 0;
    pull_ratios.push_back(pulling > 0 ? raw_pulling / pulling : 0);
    push_ratios.push_back(pushing > 0 ? raw_pushing / pushing : 0);
    ratios.push_back((raw_pulling + raw_pushing) / (pulling + pushing));
    raw.push_back((r.pull_bytes + r.push_bytes) / (raw_pulling + raw_pushing));
    pulls.push_back(r.pull_seconds / num_steps);
    pushes.push_back(r.push_seconds / num_steps);
    owns.push_back((r.client_seconds - r.pull_seconds - r.push_seconds) / num_steps);
  }
  for (const PullPushFigures& client : clients) {
    steps.insert(steps.end(), client.step_seconds().begin(), client.step_seconds().end());
    if (m.wrong.empty()) m.wrong = client.wrong();
  }
  m.rows_per_second = Median(rows);
  m.bytes_per_second = Median(bytes);
  m.p50_seconds = Quantile(steps, 0.5);
  m.p99_seconds = Quantile(steps, 0.99);
  m.pull_seconds = Median(pulls);
  m.own_seconds = Median(owns);
  m.push_seconds = Median(pushes);
  m.pull_ratio = Median(pull_ratios);
  m.push_ratio = Median(push_ratios);
  m.ratio = Median(ratios);
  m.raw_bytes_per_second = Median(raw);
  return m;
}

std::vector<std::string> RoleArguments(const PullPushCase& bench, const char* role,
                                       const std::string& master, uint32_t index) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintToString(bench, &text);
  return {"bench",   "pull-push",         "--role",        role, "--case", text, "--master", master,
          "--index", absl::StrCat(index), "--secret-file", "-"};
}

struct CaseOutcome {
  cli::Supervisor::Outcome processes;
  std::vector<PullPushFigures> clients;
};

// Starts the processes of a case and waits until they end.
absl::StatusOr<CaseOutcome> RunCase(const PullPushCase& bench) {
  Reports reports;
  rpc::MembershipOptions membership;
  membership.num_ps = bench.servers();
  membership.num_trainers = bench.clients();
  rpc::MasterService master(membership);
  ASSIGN_OR_RETURN(const rpc::Secret secret, rpc::Secret::Draw());
  rpc::Server server((rpc::Credentials(secret)));
  master.RegisterHandlers(server);
  reports.Register(server);
  RETURN_IF_ERROR(server.Start("127.0.0.1:0"));
  cli::Supervisor supervisor(&secret);
  for (uint32_t i = 0; i < bench.servers(); ++i) {
    RETURN_IF_ERROR(supervisor.Start(absl::StrCat("ps-", i),
                                     RoleArguments(bench, "server", server.address(), i)));
  }
  for (uint32_t i = 0; i < bench.clients(); ++i) {
    RETURN_IF_ERROR(supervisor.Start(absl::StrCat("trainer-", i),
                                     RoleArguments(bench, "client", server.address(), i)));
  }
  const cli::Supervisor::Outcome outcome = supervisor.Run();
  server.Shutdown(0);
  CaseOutcome ended{outcome, reports.Take()};
  if (ended.processes.exit_code == 0 && ended.clients.size() != bench.clients()) {
    return absl::InternalError(
        absl::StrCat(ended.clients.size(), " of ", bench.clients(), " clients reported"));
  }
  return ended;
}

void PrintHead(const std::vector<PullPushCase>& plan) {
  std::printf(
      "A row: an id looked up, pulled and (unless the mode is pull) its gradient pushed once, over "
      "all clients. GB/s: 8 bytes of id and what\n"
      "the row travels as for each pull and for each push of a distinct id, over the whole step. "
      "wait+own+wait: a client's step is the wait for\n"
      "rows, work of its own (in hybrid modes the dense net and its all-reduce) and the wait for "
      "pushes and the commit; pull_push works in parts\n"
      "of its ids: rows of some are on their way while gradients of others are made and pushed. "
      "raw: streams of 1 MB messages gathered in pieces\n"
      "of 256 bytes and copied out, on the same path between the same processes; its share: our "
      "GB/s while clients wait for pulls or pushes, of\n"
      "raw (of pull_push, where one goes on during the other, the whole share tells most). "
      "permits: steps of a client that may be under way. %u repetitions, medians.\n"
      "%-13s %7s %7s %7s %7s %4s %7s %4s %4s %10s %7s %9s %9s %14s %8s %6s %6s %6s\n",
      plan[0].repetitions(), "mode", "clients", "servers", "threads", "permits", "dim", "ids",
      "path", "wire", "M rows/s", "GB/s", "p50 ms", "p99 ms", "wait+own+wait", "raw GB/s", "share",
      "pull", "push");
  std::fflush(stdout);
}

void Print(const Measured& m) {
  const auto ratio = [](double value) {
    return value > 0 ? absl::StrFormat("%.2f", value) : std::string("-");
  };
  const std::string split = absl::StrFormat("%.1f+%.1f+%.1f", m.pull_seconds * 1e3,
                                            m.own_seconds * 1e3, m.push_seconds * 1e3);
  std::printf(
      "%-13s %7u %7u %7d %7u %4u %7s %4s %4s %10.3f %7.2f %9.3f %9.3f %14s %8.2f %6s %6s %6s\n",
      ModeName(m.bench), m.bench.clients(), m.bench.servers(), m.bench.threads(), m.bench.permits(),
      m.bench.dim(), IdsName(m.bench), PathName(m.bench), ps::NameOf(m.bench.wire()),
      m.rows_per_second * 1e-6, m.bytes_per_second * 1e-9, m.p50_seconds * 1e3, m.p99_seconds * 1e3,
      split.c_str(), m.raw_bytes_per_second * 1e-9, ratio(m.ratio).c_str(),
      ratio(m.pull_ratio).c_str(), ratio(m.push_ratio).c_str());
  if (!m.wrong.empty()) std::printf("FAIL: %s\n", m.wrong.c_str());
  std::fflush(stdout);
}

std::string JsonObject(const Measured& m) {
  using report::NineDigits;
  const std::string path = PathName(m.bench);
  return report::JsonText(
      {{"mode", ModeName(m.bench)},
       {"clients", m.bench.clients()},
       {"servers", m.bench.servers()},
       {"threads", m.bench.threads()},
       {"permits", m.bench.permits()},
       {"rows", m.bench.rows()},
       {"dim", m.bench.dim()},
       {"batch", m.bench.batch()},
       {"ids", IdsName(m.bench)},
       {"path", path},
       {"wire", ps::NameOf(m.bench.wire())},
       {"rows_per_second", NineDigits(m.rows_per_second)},
       {"gb_per_second", NineDigits(m.bytes_per_second * 1e-9)},
       {"p50_ms", NineDigits(m.p50_seconds * 1e3)},
       {"p99_ms", NineDigits(m.p99_seconds * 1e3)},
       {"pull_ms", NineDigits(m.pull_seconds * 1e3)},
       {"own_ms", NineDigits(m.own_seconds * 1e3)},
       {"push_ms", NineDigits(m.push_seconds * 1e3)},
       {"raw_" + path + "_gb_per_second", NineDigits(m.raw_bytes_per_second * 1e-9)},
       {"ratio_to_raw_" + path, NineDigits(m.ratio)},
       {"correct", m.wrong.empty()}});
}

absl::StatusOr<PullPushCase> MakeCase(const PullPushOptions& options, const std::string& mode,
                                      uint32_t dim, const std::string& ids, const std::string& wire,
                                      const std::string& path) {
  PullPushCase bench;
  bench.set_path(path == "shm" ? PullPushCase::SHM : PullPushCase::GRPC);
  bench.set_mode(ModeOf(mode));
  bench.set_clients(options.clients > 0 ? static_cast<uint32_t>(options.clients)
                    : HasSamples(bench) ? 2
                                        : 1);
  bench.set_servers(static_cast<uint32_t>(options.servers));
  bench.set_threads(options.threads);
  bench.set_rows(options.rows);
  bench.set_dim(dim);
  bench.set_batch(options.batch);
  bench.set_ids(ids == "zipf" ? PullPushCase::ZIPF : PullPushCase::UNIFORM);
  for (const WireFormat format : {WIRE_BF16, WIRE_F16, WIRE_INT8}) {
    if (wire == ps::NameOf(format)) bench.set_wire(format);
  }
  bench.set_steps(options.steps);
  bench.set_seconds(options.seconds);
  bench.set_repetitions(options.repetitions);
  if (HasSamples(bench) && options.permits > 1 && !options.modes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--permits ", options.permits, " with --mode ",
                                                   mode,
                                                   ", whose steps follow one another; allowed: 1"));
  }
  bench.set_permits(HasSamples(bench) ? 1 : options.permits);
  if (IsPooled(bench) && bench.wire() != WIRE_F32) {
    return absl::InvalidArgumentError(absl::StrCat("--wire ", wire, " with --mode ", mode,
                                                   ", whose sums travel in f32; allowed: f32"));
  }
  if (!HasSamples(bench) && bench.batch() > bench.rows() / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch ", bench.batch(), " with --mode ", mode,
                     ", which takes that many distinct ids of --rows ", bench.rows(),
                     "; allowed: half of them"));
  }
  return bench;
}

bool Wanted(const std::vector<std::string>& paths, const char* path, bool by_default) {
  if (paths.empty()) return by_default || path == std::string("grpc");
  return std::any_of(paths.begin(), paths.end(),
                     [&](const std::string& asked) { return asked == path || asked == "all"; });
}

absl::StatusOr<std::vector<PullPushCase>> Plan(const PullPushOptions& options) {
  const auto or_all = [](const auto& asked, auto all) { return asked.empty() ? all : asked; };
  std::vector<PullPushCase> plan;
  const std::vector<std::string> all_modes{"pull_push", "pooled", "pull",
                                           "push",      "hybrid", "hybrid_pooled"};
  for (const std::string& mode : or_all(options.modes, all_modes)) {
    for (const uint32_t dim : or_all(options.dims, std::vector<uint32_t>{64, 16, 128})) {
      for (const std::string& ids :
           or_all(options.ids, std::vector<std::string>{"uniform", "zipf"})) {
        // Other dims show how bytes and rows share the cost; one kind of ids is enough for that.
        if (options.dims.empty() && options.ids.empty() && dim != 64 && ids == "zipf") continue;
        for (const std::string& wire :
             or_all(options.wires, std::vector<std::string>{"f32", "bf16", "int8"})) {
          if (options.wires.empty() && wire != "f32" && (dim != 64 || ids == "zipf")) continue;
          if (options.modes.empty() && mode.ends_with("pooled") && wire != "f32") continue;
          for (const char* path : {"grpc", "shm"}) {
            if (!Wanted(options.paths, path, dim == 64 && wire == "f32")) continue;
            ASSIGN_OR_RETURN(const PullPushCase bench,
                             MakeCase(options, mode, dim, ids, wire, path));
            plan.push_back(bench);
          }
        }
      }
    }
  }
  return plan;
}

int RunRole(const PullPushOptions& options) {
  PullPushCase bench;
  if (!google::protobuf::TextFormat::ParseFromString(options.one_case, &bench)) {
    return cli::ReportError(absl::InvalidArgumentError("--case is no case"));
  }
  cli::RoleOptions role;
  role.master = options.master;
  role.index = options.index;
  role.secret_file = options.secret_file;
  return options.role == "server" ? RunPullPushServer(bench, role) : RunPullPushClient(bench, role);
}

}  // namespace

int BenchPullPush(const PullPushOptions& options) {
  if (!options.role.empty()) return RunRole(options);
  cli::CatchSignals();
  const auto plan = Plan(options);
  if (!plan.ok()) return cli::ReportError(plan.status());
  JsonFile json(options.json);
  if (absl::Status status = json.status(); !status.ok()) return cli::ReportError(status);
  PrintHead(*plan);
  std::vector<std::string> objects;
  bool all_correct = true;
  for (const PullPushCase& bench : *plan) {
    const auto outcome = RunCase(bench);
    if (!outcome.ok()) return cli::ReportError(outcome.status());
    if (outcome->processes.exit_code != 0) return cli::ReportOutcome(outcome->processes);
    const Measured measured = Summarise(bench, outcome->clients);
    Print(measured);
    all_correct &= measured.wrong.empty();
    objects.push_back(JsonObject(measured));
  }
  if (absl::Status status = json.Write(objects); !status.ok()) return cli::ReportError(status);
  return all_correct ? 0
                     : cli::ReportError(absl::InternalError(
                           "rows or weights are not what the steps make of them"));
}

}  // namespace tandem::bench
