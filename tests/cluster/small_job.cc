#include "tests/cluster/small_job.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace tandem::cluster {

namespace {

constexpr char kJob[] = R"(device: CPU
data { format: SEQUENCES }
model {
  sequence_rec {
    max_length: 8
    layers: 1
    heads: 2
    dropout: 0.2
    init_stddev: 0.1
  }
}
tables {
  name: "item"
  dim: 16
}
train {
  batch_size: 30
  max_epochs: 100
  max_steps: 20
  eval_every_epochs: 100
}
)";

constexpr char kCustomJob[] = R"(device: CPU
model {
  custom {
    name: "two_tower"
    options {
      dim: 12
      negatives: 20
    }
  }
}
tables {
  name: "item"
  dim: 16
}
train {
  batch_size: 30
  max_epochs: 100
  max_steps: 20
  eval_every_epochs: 100
}
)";

// A language model with its token table, or all parameters, on servers. With all parameters it is
// wide enough for chunks that span parameters.
std::string LanguageJob(const std::string& placement, int dim) {
  return "device: CPU\n" + placement + R"(
model {
  gpt {
    max_length: 8
    layers: 1
    heads: 2
    dim: )" +
         std::to_string(dim) + R"(
    dropout: 0.1
    linear_bias: true
  }
}
optimizer {
  kind: ADAMW
  weight_decay: 0.1
  max_grad_norm: 1
}
train {
  batch_size: 6
  max_steps: 20
  eval_every_steps: 7
}
)";
}

std::string TextOf(SmallJobKind kind) {
  switch (kind) {
    case SmallJobKind::RECOMMENDATION:
      return kJob;
    case SmallJobKind::LANGUAGE:
      return LanguageJob("placement: PS", 16);
    case SmallJobKind::CUT:
      return LanguageJob("placement: REPLICATED", 16);
    case SmallJobKind::SERVED:
      return LanguageJob("parameters {\n  match: \"*\"\n  placement: PS\n}", 32);
    case SmallJobKind::CUSTOM:
      return kCustomJob;
  }
  return "";
}

// A field's value in a one-line JSON object, cut by hand: the values used here hold no commas,
// braces or quotes.
std::string JsonField(const std::string& json, const std::string& field) {
  const std::string key = "\"" + field + "\":";
  const size_t at = json.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  std::string value = json.substr(begin, json.find_first_of(",}", begin) - begin);
  value.erase(std::remove(value.begin(), value.end(), '"'), value.end());
  return value;
}

std::string RoleName(const support::RunningProcess& process) {
  if (process.arguments.size() < 2) return "";
  const std::string& role = process.arguments[1];
  return role == "master" ? "master-0" : role + "-" + process.ValueOf("--index");
}

}  // namespace

std::string LogText(int num_users, int num_items, int length) {
  std::ostringstream text;
  uint32_t random = 1;
  for (int user = 1; user <= num_users; ++user) {
    text << user;
    for (int i = 0; i < length; ++i) {
      random = random * 1664525 + 1013904223;
      text << ' ' << 1 + (random >> 8) % static_cast<uint32_t>(num_items);
    }
    text << '\n';
  }
  return text.str();
}

SmallJob::SmallJob(SmallJobKind kind, std::string program)
    : program_(std::move(program)),
      job_path_(folder_.Write("job.textproto", TextOf(kind))),
      log_path_(folder_.Write("log.txt", LogText(90, 70, 9))),  // the language job reads it as text
      foreign_memory_(support::SharedMemoryFiles()) {}

SmallJob::~SmallJob() {
  for (const support::RunningProcess& process : Processes()) kill(process.pid, SIGKILL);
}

std::unique_ptr<support::Process> SmallJob::Start(const std::string& command,
                                                  const std::string& out,
                                                  const Arguments& arguments) {
  Arguments all{program_, command,  job_path_, "--set", "data.path=" + log_path_,
                "--out",  Path(out)};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return std::make_unique<support::Process>(folder_.path(), all);
}

support::Ended SmallJob::Launch(const std::string& out, const Arguments& arguments) {
  return Start("launch", out, arguments)->WaitWhileItWorks();
}

support::Ended SmallJob::Run(const Arguments& arguments) {
  Arguments all{program_};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return support::Process(folder_.path(), all).WaitWhileItWorks();
}

std::string SmallJob::HashOf(const std::string& out, const Arguments& arguments) {
  const support::Ended ended = Launch(out, arguments);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(Summary(out, "status"), "completed");
  ExpectNothingLeft();
  const std::string hash = Summary(out, "params_hash");
  EXPECT_EQ(hash.size(), 32u) << hash;
  return hash;
}

std::string SmallJob::Read(const std::string& name) const {
  std::ifstream file(Path(name), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string SmallJob::Summary(const std::string& out, const std::string& field) const {
  return JsonField(Read(out + "/summary.json"), field);
}

std::vector<double> SmallJob::Losses(const std::string& out) const {
  std::vector<double> losses;
  std::ifstream file(Path(out) + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);)
    losses.push_back(std::stod(JsonField(line, "loss")));
  return losses;
}

bool SmallJob::HasLoggedAStep(const std::string& out) const {
  return Read(out + "/metrics.jsonl").find('\n') != std::string::npos;
}

bool SmallJob::HasCheckpoint(const std::string& out) const {
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(Path(out) + "/checkpoints", ignored)) {
    if (entry.path().filename().string().rfind("step-", 0) == 0) return true;
  }
  return false;
}

support::RunningProcess SmallJob::Role(const std::string& name) const {
  for (const support::RunningProcess& process : Processes()) {
    if (RoleName(process) == name) return process;
  }
  return {};
}

void SmallJob::ExpectNothingLeft(double moment_seconds) const {
  const bool all_ended =
      support::Eventually(moment_seconds, [this] { return Processes().empty(); });
  std::string left;
  for (const support::RunningProcess& process : Processes()) left += RoleName(process) + " ";
  EXPECT_TRUE(all_ended) << "still running: " << left;
  // Another test's segments have a name for a moment only. A segment that is seen now and stays is
  // a leak.
  std::vector<std::string> suspects = support::SharedMemoryFiles();
  std::erase_if(suspects, [this](const std::string& name) {
    return std::find(foreign_memory_.begin(), foreign_memory_.end(), name) != foreign_memory_.end();
  });
  const bool unlinked = support::Eventually(5, [&suspects] {
    const std::vector<std::string> present = support::SharedMemoryFiles();
    return std::none_of(suspects.begin(), suspects.end(), [&present](const std::string& name) {
      return std::find(present.begin(), present.end(), name) != present.end();
    });
  });
  EXPECT_TRUE(unlinked) << "left in /dev/shm: " << suspects.front();
}

}  // namespace tandem::cluster
