#include "trainer/report/events/run_events.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/base/status_macros.h"

namespace tandem::report {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLatest = 9'999'999'999;  // names have ten digits

// The paths of the event files in `folder`.
std::vector<fs::path> EventFilesIn(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (absl::StartsWith(entry->path().filename().string(), kEventFilePrefix))
      paths.push_back(entry->path());
  }
  return paths;
}

// Now, or later where a file of that time or a later one is there. A clock may have been set back.
int64_t SecondsAfter(const std::vector<fs::path>& paths) {
  int64_t seconds = absl::ToUnixSeconds(absl::Now());
  for (const fs::path& path : paths) {
    const std::string name = path.filename().string();
    const size_t begin = std::string(kEventFilePrefix).size();
    int64_t other = 0;
    if (absl::SimpleAtoi(name.substr(begin, name.find('.', begin) - begin), &other) &&
        other < kLatest)
      seconds = std::max(seconds, other + 1);
  }
  return seconds;
}

double Now() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

}  // namespace

absl::StatusOr<std::unique_ptr<RunEvents>> RunEvents::BeginAnew(const std::string& folder) {
  std::error_code ignored;
  for (const fs::path& path : EventFilesIn(folder)) fs::remove(path, ignored);
  ASSIGN_OR_RETURN(auto file, EventFile::Create(folder, SecondsAfter({})));
  RETURN_IF_ERROR(file->Flush());
  return std::unique_ptr<RunEvents>(new RunEvents(std::move(file)));
}

absl::StatusOr<std::unique_ptr<RunEvents>> RunEvents::BeginAfter(const std::string& folder,
                                                                 int64_t last_step) {
  ASSIGN_OR_RETURN(auto file, EventFile::Create(folder, SecondsAfter(EventFilesIn(folder))));
  RETURN_IF_ERROR(file->AddRestart(last_step + 1, Now()));
  RETURN_IF_ERROR(file->Flush());
  return std::unique_ptr<RunEvents>(new RunEvents(std::move(file)));
}

absl::Status RunEvents::AddStep(const StepRecord& record) {
  std::vector<std::pair<const char*, double>> scalars{
      {"train/loss", record.loss},
      {"train/lr", record.learning_rate},
      {"train/grad_norm", record.grad_norm},
      {"speed/samples_per_second", record.samples_per_second},
      {"speed/tokens_per_second", record.tokens_per_second},
      {"step_ms/compute", record.compute_ms},
      {"step_ms/collectives", record.collective_ms},
      {"step_ms/pull", record.pull_ms},
      {"step_ms/push", record.push_ms},
      {"staleness", static_cast<double>(record.staleness)}};
  if (record.mfu > 0) scalars.emplace_back("speed/mfu", record.mfu);
  for (const auto& [tag, value] : scalars)
    RETURN_IF_ERROR(file_->AddScalar(record.step, record.time, tag, value));
  return file_->Flush();
}

absl::Status RunEvents::AddEvaluation(int64_t step, const std::map<std::string, double>& metrics) {
  for (const auto& [name, value] : metrics)
    RETURN_IF_ERROR(file_->AddScalar(step, Now(), name, value));
  return file_->Flush();
}

}  // namespace tandem::report
