// `tandem bench pull-push`: rows per second between clients and parameter servers in separate
// processes, compared with raw streams between the same processes. This process starts them, is
// their master and prints the clients' reports.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "ps/wire/wire_codec.h"
#include "trainer/bench/batches.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/pull_push_roles.h"
#include "trainer/bench/pull_push_summary.h"
#include "trainer/bench/pull_push_table.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/signals.h"

namespace tandem::bench {

namespace {

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
  if (absl::Status status = ParsePlan(options.member.what, &bench); !status.ok())
    return cli::ReportError(status);
  const cli::RoleOptions role = RoleOf(options.member);
  return options.member.role == "server" ? RunPullPushServer(bench, role)
                                         : RunPullPushClient(bench, role);
}

}  // namespace

int BenchPullPush(const PullPushOptions& options) {
  if (!options.member.role.empty()) return RunRole(options);
  cli::CatchSignals();
  const auto plan = Plan(options);
  if (!plan.ok()) return cli::ReportError(plan.status());
  FigureFile json(options.json);
  if (absl::Status status = json.status(); !status.ok()) return cli::ReportError(status);
  PullPushTable table(*plan);
  table.PrintHead();
  std::vector<std::string> objects;
  bool all_correct = true;
  for (const PullPushCase& bench : *plan) {
    const auto outcome = RunMembers({.command = "pull-push",
                                     .what = &bench,
                                     .servers = bench.servers(),
                                     .trainers = bench.clients()});
    if (!outcome.ok()) return cli::ReportError(outcome.status());
    if (outcome->processes.exit_code != 0) return cli::ReportOutcome(outcome->processes);
    std::vector<PullPushFigures> clients;
    for (const MemberReport& report : outcome->reports) clients.push_back(report.pull_push());
    const PullPushSummary measured = Summarise(bench, clients);
    table.Print(measured);
    all_correct &= measured.wrong.empty();
    objects.push_back(JsonObject(measured));
  }
  if (absl::Status status = json.Write(objects); !status.ok()) return cli::ReportError(status);
  return all_correct ? 0
                     : cli::ReportError(absl::InternalError(
                           "rows or weights are not what the steps make of them"));
}

}  // namespace tandem::bench
