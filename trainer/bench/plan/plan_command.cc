// `tandem plan`: which tables and dense parameters of a job parameter servers synchronise faster
// than a ring, and why.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "trainer/bench/commands.h"
#include "trainer/bench/cost/profile.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/members/capped_link.h"
#include "trainer/bench/plan/plan.h"
#include "trainer/bench/sync/points.h"
#include "trainer/bench/sync/probes.h"
#include "trainer/cli/help_text.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/process/signals.h"
#include "trainer/cli/version.h"
#include "trainer/report/text_table.h"

namespace tandem::bench {

namespace {

constexpr int kMostMembers = 1024;

// Two digits, and all that stand before the point: "0.24", "1.9", "380".
std::string TwoDigits(double value) {
  return absl::StrFormat(value < 9.95 ? "%.2g" : "%.0f", value);
}

std::string TimeText(double seconds) {
  return seconds < 1e-4 ? absl::StrCat(TwoDigits(seconds * 1e6), " us")
                        : absl::StrCat(TwoDigits(seconds * 1e3), " ms");
}

std::string BytesText(double bytes) {
  return bytes < 1e6 ? absl::StrCat(TwoDigits(bytes / 1e3), " KB")
                     : absl::StrCat(TwoDigits(bytes / 1e6), " MB");
}

// Everything that is wrong with the flags, one per line.
absl::Status CheckFlags(const PlanOptions& options) {
  std::vector<std::string> errors;
  if (options.servers < 0 || options.servers > kMostMembers)
    errors.push_back(absl::StrCat("--ps is ", options.servers, "; allowed: 0 .. ", kMostMembers));
  if (options.trainers < 1 || options.trainers > kMostMembers)
    errors.push_back(
        absl::StrCat("--trainers is ", options.trainers, "; allowed: 1 .. ", kMostMembers));
  if (options.measure && !options.profile.empty())
    errors.emplace_back("--measure and --profile exclude each other");
  if (const auto link = LinkOf(options.link); !link.ok())
    errors.emplace_back(link.status().message());
  if (!options.write_profile.empty() && !options.measure)
    errors.emplace_back("--write-profile writes what --measure has measured; give both");
  for (const auto& [flag, path] :
       {std::pair("--json", options.json), {"--write-profile", options.write_profile}}) {
    if (const std::string why = FigureFile::WhyNot(path, flag); !why.empty()) errors.push_back(why);
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
}

Machines MachinesOf(const SyncLink& link, const CostProfile& costs) {
  if (link.link == SyncPoint::CAPPED)
    return {.transport = Machines::NETWORK,
            .bits_per_second = link.bits_per_second,
            .member_cores = static_cast<double>(costs.cores())};
  return {.transport = link.link == SyncPoint::SHM ? Machines::SHM : Machines::TCP,
          .cores = static_cast<double>(costs.cores())};
}

// The costs, and on the way a line that says whose they are. Empty if they could not be measured.
std::optional<CostProfile> CostsOf(const PlanOptions& options, const SyncLink& link,
                                   const std::optional<CostProfile>& read, int* exit_code) {
  if (read.has_value()) {
    std::printf("Costs of %s: %s, %s.\n", options.profile.c_str(), read->machine().c_str(),
                read->date().c_str());
    if (read->machine() != cli::ProcessorText())
      std::fprintf(stderr, "warning: %s is of another machine: %s; this one: %s\n",
                   options.profile.c_str(), read->machine().c_str(), cli::ProcessorText().c_str());
    return read;
  }
  if (!options.measure) {
    std::printf("Typical costs, not this machine's: --measure takes half a minute for those.\n");
    return TypicalCosts();
  }
  // A file of costs is for every link.
  const bool all = !options.write_profile.empty(), capped = link.link == SyncPoint::CAPPED;
  const auto probes =
      ProbePoints(all || link.link != SyncPoint::SHM, (all || capped) && CheckCappedLinks().ok());
  cli::CatchSignals();
  const auto costs = MeasureCosts(probes, nullptr, exit_code);
  if (!costs.has_value()) return std::nullopt;
  std::printf("Costs measured now by %d probes: %s.\n", static_cast<int>(probes.size()),
              costs->machine().c_str());
  for (const std::string& line : LinesOf(*costs, MachinesOf(link, *costs).transport))
    std::printf("  %s\n", line.c_str());
  return costs;
}

void PrintEntries(const Plan& plan, bool has_servers) {
  using report::TextTable;
  TextTable table({{"parameter", TextTable::LEFT},
                   {"size"},
                   {"rows a step"},
                   {"ring"},
                   {"servers"},
                   {"cheaper", TextTable::LEFT}});
  for (const PlanEntry& entry : plan.entries) {
    table.Add({entry.count == 1 ? entry.name : absl::StrCat(entry.name, " (", entry.count, ")"),
               BytesText(entry.bytes), entry.is_table ? PercentText(entry.share) : "all",
               TimeText(entry.ring_seconds), has_servers ? TimeText(entry.server_seconds) : "-",
               entry.by_servers ? "servers" : "ring"});
  }
  const std::string text = table.TakeLines(cli::HelpColumns());
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::printf("\n%s\n", lines[0].c_str());
  for (size_t i = 0; i < plan.entries.size(); ++i) {
    std::printf("%s\n", lines[i + 1].c_str());
    const std::string& reason = plan.entries[i].reason;
    if (i + 1 == plan.entries.size() || plan.entries[i + 1].reason != reason)
      std::printf("      %s\n", reason.c_str());
  }
}

void PrintSteps(const Plan& plan, int servers) {
  report::TextTable table(
      {{"one step's synchronisation, modelled", report::TextTable::LEFT}, {""}});
  table.Add({"as planned", TimeText(plan.planned)});
  if (servers > 0) {
    table.Add({"tables by servers, the rest by a ring", TimeText(plan.hybrid)});
    table.Add({"all by servers", TimeText(plan.all_servers)});
  }
  table.Add({"all by a ring", TimeText(plan.all_ring)});
  std::printf("\n%s", table.TakeLines(cli::HelpColumns()).c_str());
}

std::string JsonOf(const Plan& plan, const PlanOptions& options, const CostProfile& costs) {
  nlohmann::ordered_json json;
  json["job"] = options.job_path;
  json["ps"] = options.servers;
  json["trainers"] = options.trainers;
  json["link"] = options.link;
  json["costs_of"] = {{"machine", costs.machine()}, {"date", costs.date()}};
  // Without servers there is no time of theirs.
  const auto with_servers = [&](double seconds) {
    return options.servers > 0 ? nlohmann::ordered_json(seconds * 1e3) : nullptr;
  };
  for (const PlanEntry& entry : plan.entries) {
    json["parameters"].push_back({{"name", entry.name},
                                  {"kind", entry.is_table ? "table" : "dense"},
                                  {"count", entry.count},
                                  {"bytes", entry.bytes},
                                  {"share", entry.share},
                                  {"ring_ms", entry.ring_seconds * 1e3},
                                  {"ps_ms", with_servers(entry.server_seconds)},
                                  {"cheaper", entry.by_servers ? "ps" : "ring"},
                                  {"reason", entry.reason}});
  }
  json["step_ms"] = {{"planned", plan.planned * 1e3},
                     {"hybrid", with_servers(plan.hybrid)},
                     {"all_ps", with_servers(plan.all_servers)},
                     {"all_ring", plan.all_ring * 1e3}};
  using Json = nlohmann::ordered_json;  // a path need not be UTF-8
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

int PlanPlacement(const PlanOptions& options, const tasks::Kinds& kinds) {
  if (absl::Status status = CheckFlags(options); !status.ok()) return cli::ReportError(status);
  const SyncLink link = *LinkOf(options.link);
  std::optional<CostProfile> read;
  if (!options.profile.empty()) {
    auto profile = ReadProfile(options.profile);
    if (!profile.ok()) return cli::ReportError(profile.status());
    read = *std::move(profile);
  }
  const auto inventory = TakeInventory(options.job_path, options.sets, options.trainers, kinds);
  if (!inventory.ok()) return cli::ReportError(inventory.status());
  if (options.servers == 0 && !inventory->needs_servers.empty())
    return cli::ReportError(absl::InvalidArgumentError(
        absl::StrCat("--ps is 0, but ", inventory->needs_servers,
                     "; allowed: --ps of at least 1, or the placement REPLICATED")));
  FigureFile json(options.json);
  if (absl::Status status = json.status(); !status.ok()) return cli::ReportError(status);
  int exit_code = 0;
  const std::optional<CostProfile> costs = CostsOf(options, link, read, &exit_code);
  if (!costs.has_value()) return exit_code;
  if (!options.write_profile.empty()) {
    if (absl::Status status = WriteProfile(*costs, options.write_profile); !status.ok())
      return cli::ReportError(status);
  }
  const Plan plan =
      MakePlan(*inventory, options.trainers, options.servers, MachinesOf(link, *costs), *costs);
  for (const std::string& note : inventory->notes)
    std::printf("The plan counts as if %s.\n", note.c_str());
  PrintEntries(plan, options.servers > 0);
  PrintSteps(plan, options.servers);
  if (absl::Status status = json.WriteText(JsonOf(plan, options, *costs)); !status.ok())
    return cli::ReportError(status);
  return 0;
}

}  // namespace tandem::bench
