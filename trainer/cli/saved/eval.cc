// `tandem eval`: computes the test figures of a checkpoint in this process. They equal the figures
// of the run that wrote it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/saved_data.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/report.h"
#include "trainer/cli/saved/saved_tables.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/job/job_config.h"
#include "trainer/loop/replica/divergence.h"
#include "trainer/tasks/embedding_table.h"
#include "trainer/tasks/job_data.h"

namespace tandem::cli {

namespace {

// The file of --dump, if asked for: one line per example.
class Dump {
 public:
  explicit Dump(const std::string& path) : path_(path) {
    if (!path.empty()) file_ = std::fopen(path.c_str(), "w");
  }
  ~Dump() {
    if (file_ != nullptr) std::fclose(file_);
  }
  absl::Status status() const {
    const bool fine = path_.empty() || (file_ != nullptr && std::ferror(file_) == 0);
    return fine ? absl::OkStatus() : Error();
  }
  std::function<void(const std::string&)> Visitor() {
    if (file_ == nullptr) return nullptr;
    return [this](const std::string& line) { std::fprintf(file_, "%s\n", line.c_str()); };
  }
  absl::Status Finish() {
    RETURN_IF_ERROR(status());
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0) return Error();
    return absl::OkStatus();
  }

 private:
  absl::Status Error() const {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write --dump ", path_, ": ", std::strerror(errno)));
  }
  const std::string path_;
  std::FILE* file_ = nullptr;
};

// Reads the job's data with the checkpoint's catalogue, so that a part of a log is ranked like the
// whole log.
absl::StatusOr<std::unique_ptr<tasks::JobData>> ReadDataOf(const checkpoint::Checkpoint& saved,
                                                           const tasks::Kinds& kinds, Job* job) {
  const CheckpointManifest& manifest = saved.manifest;
  RETURN_IF_ERROR(checkpoint::CheckSameCatalogue(*job, manifest));
  const uint64_t catalogue = checkpoint::CatalogueOf(manifest);
  if (catalogue != 0 && job->data().ids() == Data::DENSE)
    job->mutable_data()->set_num_items(catalogue);
  ASSIGN_OR_RETURN(const checkpoint::SavedItems items, checkpoint::ReadItems(saved));
  auto data = kinds.ReadData(*job, tasks::DataUse::EVALUATE, {items.ids, items.catalogue});
  if (catalogue == 0 || data.status().code() != absl::StatusCode::kDataLoss) return data;
  return absl::DataLossError(absl::StrCat(data.status().message(),
                                          " (the checkpoint's catalogue is 1 .. ", catalogue, ")"));
}

void PrintData(const tasks::JobData& data, const CheckpointManifest& manifest) {
  std::printf("%s\n", data.Description().c_str());
  if (manifest.data().empty()) {
    std::printf("the checkpoint does not say which data it was trained on\n");
  } else if (!checkpoint::IsSameData(data.Files(), manifest)) {
    std::printf("not the data that the checkpoint was trained on\n");
  }
  if (data.num_items() == 0) return;
  const bool known = checkpoint::CatalogueOf(manifest) != 0;
  std::printf(
      "ranks are among the items 1 .. %llu%s\n", static_cast<unsigned long long>(data.num_items()),
      known ? "" : ", the largest id of this data: the checkpoint does not say its catalogue");
}

absl::Status Run(const EvalOptions& options, const tasks::Kinds& kinds) {
  ASSIGN_OR_RETURN(Job job, LoadJob(options.job_path, options.sets, {.models = kinds.models()}));
  ASSIGN_OR_RETURN(const checkpoint::Checkpoint saved,
                   checkpoint::OpenCheckpoint(options.checkpoint, checkpoint::Choice::BEST));
  RETURN_IF_ERROR(checkpoint::CheckSameModel(job, saved.manifest, kinds.models()));
  ASSIGN_OR_RETURN(const std::unique_ptr<tasks::JobData> data, ReadDataOf(saved, kinds, &job));
  RETURN_IF_ERROR(checkpoint::CheckSameVocabulary(job, data->Symbols(), saved.manifest));
  Dump dump(options.dump);
  RETURN_IF_ERROR(dump.status());

  const absl::Duration timeout = absl::Seconds(job.runtime().timeout_seconds());
  ASSIGN_OR_RETURN(const auto tables,
                   SavedTables::Load(saved, job.ps().threads(),
                                     absl::Seconds(job.checkpoint().timeout_seconds())));
  const auto groups = comm::ThreadGroup::Create(1, "dp", timeout);
  ThreadPool pool(job.runtime().threads());
  Stream stream(&pool);
  ParameterSet parameters(job.seed(), DType::F32);
  const std::unique_ptr<sparse::RemoteEmbedding> embeddings =
      tasks::MakeEmbeddingTables(job, tables->rows(), &stream);
  const std::unique_ptr<tasks::Task> task = data->MakeTask(
      job, {.parameters = &parameters, .tables = embeddings.get(), .group = groups[0].get()});
  RETURN_IF_ERROR(checkpoint::LoadParameters(saved, parameters));

  std::map<std::string, double> metrics;
  std::string wrong;  // the name of a figure that is not finite
  for (const auto& [split, prefix] : {std::pair(tasks::EvaluationSplit::TEST, "test/"),
                                      std::pair(tasks::EvaluationSplit::VALID, "valid/")}) {
    if (!metrics.empty()) break;  // the validation split counts only if there is no test split
    ASSIGN_OR_RETURN(
        const tasks::Evaluation evaluation,
        task->Evaluate(split, {.stream = &stream, .timeout = timeout, .dump = dump.Visitor()}));
    for (const auto& [name, value] : evaluation.metrics) metrics[prefix + name] = value;
    if (wrong.empty()) wrong = loop::FirstNonFinite(prefix, evaluation);
  }
  RETURN_IF_ERROR(dump.Finish());
  std::printf("%s  step %d of %s, data %s\n", saved.folder.c_str(),
              static_cast<int>(saved.manifest.step()), saved.manifest.job().name().c_str(),
              job.data().path().c_str());
  PrintData(*data, saved.manifest);
  PrintMetrics(metrics, static_cast<int64_t>(saved.manifest.step()), data->References());
  if (!options.dump.empty()) std::printf("\nwrote %s\n", options.dump.c_str());
  if (wrong.empty()) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("checkpoint ", saved.folder, ": ", wrong, "; take another checkpoint"));
}

}  // namespace

int Eval(const EvalOptions& options, const tasks::Kinds& kinds) {
  const absl::Status status = Run(options, kinds);
  return status.ok() ? 0 : ReportError(status);
}

}  // namespace tandem::cli
