#include "trainer/report/run_output.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/folder.h"
#include "trainer/report/page/run_files.h"
#include "trainer/report/page/run_page.h"
#include "trainer/report/run_json.h"

namespace tandem::report {

namespace {

constexpr char kMetrics[] = "metrics.jsonl", kEvaluations[] = "evaluations.jsonl",
               kPage[] = "report.html";

// A file that this user may not write, or a path that is not a file, is a wrong --out. A full disk
// or file table may change.
absl::Status FileError(const std::string& path) {
  const std::string what = absl::StrCat("cannot write ", path, ": ", std::strerror(errno));
  switch (errno) {
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(absl::StrCat(what, "; give an --out that can be written"));
    default:
      return absl::ResourceExhaustedError(what);
  }
}

// A removed file would accept every record, and nobody could read it.
absl::Status CheckInPlace(std::FILE* file, const std::string& path) {
  struct stat ours {
  }, named{};
  if (fstat(fileno(file), &ours) != 0) return FileError(path);
  if (S_ISREG(ours.st_mode) && (stat(path.c_str(), &named) != 0 || ours.st_ino != named.st_ino ||
                                ours.st_dev != named.st_dev)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " was removed while the run wrote it; its records are lost"));
  }
  return absl::OkStatus();
}

absl::Status WriteLine(std::FILE* file, const std::string& path, const std::string& line) {
  if (std::fprintf(file, "%s\n", line.c_str()) < 0 || std::fflush(file) != 0)
    return FileError(path);
  return CheckInPlace(file, path);
}

absl::Status MakeFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat("--out ", folder, ": ", error.message()));
  return absl::OkStatus();
}

absl::StatusOr<std::FILE*> OpenFile(const std::string& path, const char* mode) {
  std::FILE* file = std::fopen(path.c_str(), mode);
  if (file == nullptr) return FileError(path);
  return file;
}

// Replaces atomically: a process that is killed leaves the old file or the new one.
absl::Status ReplaceFile(const std::string& path, const std::string& text) {
  const std::string draft = path + ".draft";
  ASSIGN_OR_RETURN(std::FILE * file, OpenFile(draft, "w"));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return FileError(draft);
  return std::rename(draft.c_str(), path.c_str()) == 0 ? absl::OkStatus() : FileError(path);
}

// Keeps the lines of a file of records up to a step. Drops a last line without its end, which a
// killed run left.
absl::Status DropLinesAfter(const std::string& path, int64_t last_step) {
  std::string kept;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const std::optional<RecordPlace> place = PlaceOfRecord(line);
    if (place.has_value() && place->step <= last_step) absl::StrAppend(&kept, line, "\n");
  }
  return ReplaceFile(path, kept);
}

// An evaluation as text, the most important part first: the deciding figure, then the others.
std::vector<std::string> Parts(const EvaluationRecord& record) {
  std::vector<std::string> parts{absl::StrFormat("epoch %d", record.epoch),
                                 absl::StrFormat("step %d", record.step),
                                 absl::StrFormat("train/loss %.4f", record.train_loss)};
  for (const std::string& name :
       {record.decides, std::string("valid/hr@10"), std::string("valid/sampled_hr@10"),
        std::string("valid/ndcg@10"), std::string("valid/sampled_ndcg@10")}) {
    const auto it = record.metrics.find(name);
    if (it == record.metrics.end()) continue;
    const char* best = record.best && name == record.decides ? ", best" : "";
    parts.push_back(absl::StrFormat("%s %.4f%s", name, it->second, best));
  }
  return parts;
}

}  // namespace

RunLayout LayoutOf(const Job& job, int num_ps) {
  const Parallel& parallel = job.parallel();
  return {.ps = num_ps,
          .dp = parallel.dp(),
          .tp = parallel.tp(),
          .pp = parallel.pp(),
          .zero = parallel.zero()};
}

std::string HashText(absl::uint128 hash) {
  return absl::StrFormat("%016x%016x", absl::Uint128High64(hash), absl::Uint128Low64(hash));
}

absl::StatusOr<std::unique_ptr<RunOutput>> RunOutput::Create(const std::string& folder,
                                                             LogFormat format) {
  RETURN_IF_ERROR(MakeFolder(folder));
  return std::unique_ptr<RunOutput>(new RunOutput(folder, format));
}

absl::Status RunOutput::BeginAnew() {
  RETURN_IF_ERROR(checkpoint::RemoveCheckpoints(folder_ + "/checkpoints"));
  RETURN_IF_ERROR(Open("w"));
  auto events = RunEvents::BeginAnew(folder_);
  KeepEvents(events.status());
  if (events.ok()) events_ = *std::move(events);
  return absl::OkStatus();
}

absl::Status RunOutput::BeginAfter(int64_t last_step) {
  RETURN_IF_ERROR(DropLinesAfter(PathOf(kMetrics), last_step));
  RETURN_IF_ERROR(DropLinesAfter(PathOf(kEvaluations), last_step));
  RETURN_IF_ERROR(Open("a"));
  auto events = RunEvents::BeginAfter(folder_, last_step);
  KeepEvents(events.status());
  if (events.ok()) events_ = *std::move(events);
  return absl::OkStatus();
}

absl::Status RunOutput::Open(const char* mode) {
  std::error_code ignored;
  for (const char* name : {"summary.json", "trace.json", kPage})
    std::filesystem::remove(PathOf(name), ignored);
  ASSIGN_OR_RETURN(metrics_, OpenFile(PathOf(kMetrics), mode));
  ASSIGN_OR_RETURN(evaluations_, OpenFile(PathOf(kEvaluations), mode));
  return absl::OkStatus();
}

RunOutput::~RunOutput() {
  progress_.End();
  if (metrics_ != nullptr) std::fclose(metrics_);
  if (evaluations_ != nullptr) std::fclose(evaluations_);
}

absl::Status RunOutput::AfterStep(StepRecord& record, absl::Time /*deadline*/) {
  if (!record.logged) return absl::OkStatus();
  record.time = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  record.elapsed_seconds = since_begin_.Seconds();
  const std::string json = StepJson(record);
  RETURN_IF_ERROR(WriteLine(metrics_, PathOf(kMetrics), json));
  if (events_ != nullptr) KeepEvents(events_->AddStep(record));
  progress_.Json(json);
  progress_.Step(record);
  return progress_.status();
}

absl::Status RunOutput::Evaluated(const EvaluationRecord& record) {
  const std::string json = EvaluationJson(record);
  RETURN_IF_ERROR(WriteLine(evaluations_, PathOf(kEvaluations), json));
  if (events_ != nullptr) KeepEvents(events_->AddEvaluation(record.step, record.metrics));
  progress_.Json(json);
  progress_.Line(Parts(record));
  return progress_.status();
}

absl::Status RunOutput::TakeBackEvaluation(int64_t step) {
  const std::string path = PathOf(kEvaluations);
  std::fclose(std::exchange(evaluations_, nullptr));
  RETURN_IF_ERROR(DropLinesAfter(path, step - 1));
  ASSIGN_OR_RETURN(evaluations_, OpenFile(path, "a"));
  return absl::OkStatus();
}

void RunOutput::KeepEvents(const absl::Status& status) {
  if (status.ok()) return;
  events_.reset();
  Note(absl::StrCat("TensorBoard will not see the rest of this run: ", status.message()));
}

void RunOutput::Note(const std::string& text) { progress_.Line(text); }

absl::Status WriteSummary(const std::string& folder, const RunSummary& summary) {
  RETURN_IF_ERROR(MakeFolder(folder));
  return ReplaceFile(folder + "/summary.json", SummaryJson(summary) + "\n");
}

std::string RunPagePath(const std::string& folder) { return absl::StrCat(folder, "/", kPage); }

absl::StatusOr<std::string> MakeRunPage(const std::vector<std::string>& folders) {
  std::vector<RunFiles> runs;
  std::vector<std::string> errors;
  for (const std::string& folder : folders) {
    absl::StatusOr<RunFiles> run = ReadRun(folder);
    if (run.ok()) {
      runs.push_back(*std::move(run));
    } else {
      errors.emplace_back(run.status().message());
    }
  }
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors, "\n"));
  return RunPage(runs);
}

absl::Status WriteRunPage(const std::string& page, const std::string& path) {
  return ReplaceFile(path, page);
}

absl::Status WritePageOfRun(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::string page, MakeRunPage({folder}));
  return WriteRunPage(page, RunPagePath(folder));
}

absl::Status RunOutput::Finish(const RunSummary& summary) {
  progress_.End();
  RETURN_IF_ERROR(WriteSummary(folder_, summary));
  if (const absl::Status page = WritePageOfRun(folder_); !page.ok())
    Note(absl::StrCat("this run has no page: ", page.message()));
  progress_.Json(SummaryJson(summary));
  return progress_.status();
}

}  // namespace tandem::report
