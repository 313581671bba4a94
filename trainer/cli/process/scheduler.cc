#include "trainer/cli/process/scheduler.h"

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/utf8.h"
#include "rpc/address.h"
#include "trainer/cli/process/failure.h"

namespace tandem::cli {

namespace {

constexpr char kCompletionIndex[] = "JOB_COMPLETION_INDEX", kRank[] = "RANK",
               kWorldSize[] = "WORLD_SIZE", kMasterHost[] = "MASTER_ADDR",
               kMasterPort[] = "MASTER_PORT";

std::optional<std::string> Variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

struct Source {
  std::string name;
  int rank = 0;
};

// Reads a number of the environment. Adds to `errors` if there is text that is none.
std::optional<int> Number(const char* name, std::vector<std::string>& errors) {
  const std::optional<std::string> text = Variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  if (absl::SimpleAtoi(*text, &value) && value >= 0) return value;
  errors.push_back(absl::StrCat(name, "=", Printable(*text), ": a number from 0 on is expected"));
  return std::nullopt;
}

std::string AsAssignment(const Source& source) {
  return absl::StrCat(source.name, source.name == "--index" ? " " : "=", source.rank);
}

}  // namespace

absl::Status AskScheduler(const std::string& role, int& index, std::string& master) {
  std::vector<std::string> errors;
  std::vector<Source> sources;
  if (index >= 0) sources.push_back({"--index", index});
  if (const auto completion = Number(kCompletionIndex, errors))
    sources.push_back({kCompletionIndex, *completion});
  if (role == "trainer") {
    const auto rank = Number(kRank, errors), size = Number(kWorldSize, errors);
    if (rank) sources.push_back({kRank, *rank});
    if (rank && size && *rank >= *size)
      errors.push_back(
          absl::StrCat(kRank, "=", *rank, " does not exist: ", kWorldSize, "=", *size));
    const auto host = Variable(kMasterHost), port = Variable(kMasterPort);
    if (master.empty() && host && port) {
      master = absl::StrCat(*host, ":", *port);
      if (const absl::Status target = rpc::CheckTarget(master); !target.ok())
        errors.push_back(absl::StrCat(kMasterHost, " and ", kMasterPort, ": ", target.message()));
    }
  }
  for (size_t i = 1; i < sources.size(); ++i) {
    if (sources[i].rank != sources[0].rank)
      errors.push_back(absl::StrCat(AsAssignment(sources[0]), " and ", AsAssignment(sources[i]),
                                    " name two ranks for one process: give one of them"));
  }
  if (role == "trainer" && master.empty())
    errors.push_back("--master HOST:PORT is required (or MASTER_ADDR and MASTER_PORT)");
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  const bool from_command_line = index >= 0;
  if (sources.empty() || (from_command_line && sources.size() == 1)) return absl::OkStatus();
  index = sources[0].rank;
  std::vector<std::string> names;
  for (const Source& source : sources) names.push_back(AsAssignment(source));
  std::fputs(RoleLine(absl::StrCat(role, "-", index),
                      absl::StrCat("rank ", index, ", as ", absl::StrJoin(names, " and "),
                                   names.size() > 1 ? " say" : " says"))
                 .c_str(),
             stderr);
  return absl::OkStatus();
}

absl::Status CheckWorldSize(int num_trainers) {
  std::vector<std::string> errors;
  const auto size = Number(kWorldSize, errors);
  if (!size || *size == num_trainers) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(kWorldSize, "=", *size, ", and the job has ", num_trainers,
                   " trainers (--trainers, or dp x tp x pp): give one number"));
}

void ForgetScheduler() {
  for (const char* name : {kCompletionIndex, kRank, kWorldSize, kMasterHost, kMasterPort})
    unsetenv(name);
}

}  // namespace tandem::cli
