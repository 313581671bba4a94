// `tandem eval`: the test figures of a checkpoint, in this process. They equal those of the run that wrote it.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "ps/client_local.h"
#include "ps/table_host.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/job_config.h"
#include "trainer/cli/report.h"
#include "trainer/comm/thread_group.h"
#include "trainer/loop/sequence_rec_task.h"

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
  loop::ExampleVisitor Visitor() {
    if (file_ == nullptr) return nullptr;
    return [this](const std::vector<loop::RankedExample>& examples) {
      for (const loop::RankedExample& example : examples) {
        std::string rank = absl::StrFormat("%.1f", example.rank);  // ties count half
        if (rank.back() == '0') rank.resize(rank.size() - 2);
        absl::FPrintF(file_, "%d\t%d\t%s\t%s\n", example.user, example.target, rank, absl::StrJoin(example.top, ","));
      }
    };
  }
  absl::Status Finish() {
    RETURN_IF_ERROR(status());
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0) return Error();
    return absl::OkStatus();
  }

 private:
  absl::Status Error() const {
    return absl::InvalidArgumentError(absl::StrCat("cannot write --dump ", path_, ": ", std::strerror(errno)));
  }
  const std::string path_;
  std::FILE* file_ = nullptr;
};

// The tables as they were saved: also an absent row's first values are those of the run.
absl::Status LoadTables(const checkpoint::Checkpoint& saved, ps::Client& client, absl::Duration timeout) {
  const absl::Status created =
      client.CreateTables({saved.manifest.tables().begin(), saved.manifest.tables().end()}, timeout);
  if (!created.ok()) return absl::FailedPreconditionError(absl::StrCat("checkpoint ", created.message()));
  return checkpoint::LoadRows(saved, client, absl::InfiniteFuture());  // reading a file ends by itself
}

absl::Status Run(const EvalOptions& options) {
  ASSIGN_OR_RETURN(const Job job, LoadJob(options.job_path, options.sets, {.num_trainers = 0}));
  ASSIGN_OR_RETURN(const checkpoint::Checkpoint saved, checkpoint::OpenCheckpoint(options.checkpoint, checkpoint::Choice::BEST));
  RETURN_IF_ERROR(checkpoint::CheckSameModel(job, saved.manifest));
  ASSIGN_OR_RETURN(const loop::SequenceData data, loop::ReadSequenceData(job));
  Dump dump(options.dump);
  RETURN_IF_ERROR(dump.status());

  const absl::Duration timeout = absl::Seconds(job.runtime().timeout_seconds());
  ps::TableHost host(job.ps().threads());
  ps::LocalClient client(host, /*trainer=*/0, /*num_trainers=*/1);
  RETURN_IF_ERROR(LoadTables(saved, client, timeout));
  const auto groups = comm::ThreadGroup::Create(1, "dp", timeout);
  ThreadPool pool(job.runtime().threads());
  Stream stream(&pool);
  ParameterSet parameters(job.seed(), DType::F32);
  remote::RemoteEmbedding items(&client, /*table=*/1, job.tables(0).dim());
  loop::SequenceRecTask task(job, &data, parameters, &items, groups[0].get());
  RETURN_IF_ERROR(checkpoint::LoadParameters(saved, parameters));

  ASSIGN_OR_RETURN(const loop::Evaluation test, task.Evaluate(loop::EvaluationSplit::TEST, stream,
                                                              absl::Now() + timeout, dump.Visitor()));
  RETURN_IF_ERROR(dump.Finish());
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : test.metrics) metrics["test/" + name] = value;
  std::printf("%s  step %d of %s, data %s\n", saved.folder.c_str(), static_cast<int>(saved.manifest.step()),
              saved.manifest.job().name().c_str(), job.data().path().c_str());
  PrintTestMetrics(metrics, static_cast<int64_t>(saved.manifest.epoch()), job, data);
  if (!options.dump.empty()) std::printf("\nwrote %s\n", options.dump.c_str());
  return absl::OkStatus();
}

}  // namespace

int Eval(const EvalOptions& options) {
  const absl::Status status = Run(options);
  return status.ok() ? 0 : ReportError(status);
}

}  // namespace tandem::cli
