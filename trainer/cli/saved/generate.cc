// `tandem generate`: lets a saved language model write text. Needs only the checkpoint, which holds
// the vocabulary too.
#include <cmath>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/reduce.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/cli/saved/saved_tables.h"
#include "trainer/data/text/vocabulary.h"
#include "trainer/models/sampling.h"
#include "trainer/tasks/embedding_table.h"

namespace tandem::cli {

namespace {

constexpr absl::Duration kTimeout = absl::Minutes(10);  // a large table takes long

absl::Status CheckOptions(const GenerateOptions& options) {
  const auto refuse = [](const char* flag, double found, const char* allowed) {
    return absl::InvalidArgumentError(absl::StrCat(flag, " is ", found, "; allowed: ", allowed));
  };
  if (options.length < 0) return refuse("--length", options.length, "at least 0");
  if (!(options.temperature >= 0))
    return refuse("--temperature", options.temperature, "at least 0");
  if (options.top_k < 0) return refuse("--top-k", options.top_k, "at least 0");
  if (!(options.top_p > 0 && options.top_p <= 1))
    return refuse("--top-p", options.top_p, "above 0 and at most 1");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> EncodePrompt(const std::optional<std::string>& prompt,
                                                  const data::Vocabulary& vocabulary) {
  if (!prompt) return std::vector<int64_t>{vocabulary.Find(U'\n').value_or(0)};
  auto encoded = vocabulary.Encode(*prompt);
  if (!encoded.ok())
    return absl::InvalidArgumentError(absl::StrCat("--prompt: ", encoded.status().message()));
  if (encoded->num_unseen > 0) {
    std::fprintf(stderr, "%d symbols of the prompt are unknown to the model and left out\n",
                 static_cast<int>(encoded->num_unseen));
  }
  if (encoded->numbers.empty()) {
    return absl::InvalidArgumentError(
        "--prompt has no symbol that the model knows; `tandem inspect` shows its vocabulary");
  }
  return encoded->numbers;
}

// Returns all token rows in the order of the symbols if servers held them, else an undefined
// variable.
absl::StatusOr<Variable> TokenRows(const checkpoint::Checkpoint& saved, int64_t vocabulary_size,
                                   Stream& stream) {
  if (saved.manifest.job().placement() != Job::PS) return Variable();
  ASSIGN_OR_RETURN(const auto tables, SavedTables::Load(saved, /*num_workers=*/1, kTimeout));
  const auto embeddings = tasks::MakeEmbeddingTables(saved.manifest.job(), tables->rows(), &stream);
  ASSIGN_OR_RETURN(
      const Tensor rows,
      tasks::PullRows(*embeddings, 0, tasks::AllRowIds(vocabulary_size), absl::Now() + kTimeout));
  return Variable::Constant(rows);
}

absl::Status Run(const GenerateOptions& options, const tasks::Kinds& kinds) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const checkpoint::Checkpoint saved,
                   checkpoint::OpenCheckpoint(options.checkpoint, checkpoint::Choice::BEST));
  const Job& job = saved.manifest.job();
  const bool is_known = kinds.models().Find(job.model()).ok();
  const tasks::MakeTextDecoder make_decoder = is_known ? kinds.Of(job).make_decoder : nullptr;
  if (is_known && make_decoder == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", saved.folder, " holds no language model"));
  }
  RETURN_IF_ERROR(CheckSavedJob(saved, kinds.models()));  // also refuses an unknown kind
  const auto vocabulary = data::Vocabulary::FromSymbols(saved.manifest.symbols());
  if (!vocabulary.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint ", saved.folder, ": ", vocabulary.status().message()));
  }
  ASSIGN_OR_RETURN(const std::vector<int64_t> prompt, EncodePrompt(options.prompt, *vocabulary));
  ThreadPool pool(1);
  Stream stream(&pool);
  ASSIGN_OR_RETURN(const Variable rows, TokenRows(saved, vocabulary->size(), stream));
  ParameterSet parameters(job.seed(), DType::F32);
  const auto decoder = make_decoder({.job = job,
                                     .vocabulary_size = vocabulary->size(),
                                     .rows = rows,
                                     .parameters = parameters,
                                     .stream = &stream});
  RETURN_IF_ERROR(checkpoint::LoadParameters(saved, parameters));

  const models::SamplingOptions sampling{
      .temperature = options.temperature, .top_k = options.top_k, .top_p = options.top_p};
  const RandomKey key{options.seed, StableHash("generate")};
  std::fputs(vocabulary->Decode(prompt).c_str(), stdout);
  std::vector<int64_t> next = prompt;
  for (int i = 0; i < options.length; ++i) {
    const Tensor logits = decoder->Feed(next);
    if (!std::isfinite(kernels::SumOfSquares(logits.view(), stream))) {
      return absl::OutOfRangeError(absl::StrCat(
          "checkpoint ", saved.folder, ": the model gives a logit that is not finite (NaN or ",
          "infinity); take another checkpoint"));
    }
    next = {models::SampleToken({logits.data<float>(), static_cast<size_t>(vocabulary->size())},
                                sampling, key, static_cast<uint64_t>(i))};
    std::fputs(vocabulary->Decode(next).c_str(), stdout);
    std::fflush(stdout);
  }
  std::fputs("\n", stdout);
  return absl::OkStatus();
}

}  // namespace

int Generate(const GenerateOptions& options, const tasks::Kinds& kinds) {
  const absl::Status status = Run(options, kinds);
  return status.ok() ? 0 : ReportError(status);
}

}  // namespace tandem::cli
