// The training loop's view of a model: batches, a loss over them and an evaluation. The loop knows
// nothing else of a model.
// Thread rule: Prepare from any thread; the rest from the step's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "trainer/autograd/parameter.h"
#include "trainer/comm/process_group.h"
#include "trainer/job/custom_options.h"
#include "trainer/job/limits.h"
#include "trainer/parallel/pipeline/pipeline.h"
#include "trainer/sparse/remote_embedding.h"
#include "trainer/tasks/text_decoder.h"

namespace tandem::parallel {
class TensorGroup;
}

namespace tandem::tasks {

// A replica's objects for its task.
// REQUIRES: all objects outlive the task.
struct TaskEnvironment {
  ParameterSet* parameters = nullptr;
  // Embedding rows on parameter servers; null: the embeddings are dense parameters.
  sparse::RemoteEmbedding* tables = nullptr;
  comm::ProcessGroup* group = nullptr;   // the data-parallel replicas
  comm::ProcessGroup* stages = nullptr;  // the ranks of the pipeline; null: this rank alone
  // Cuts the model's layers; null: the model is whole.
  const parallel::TensorGroup* tp = nullptr;
  // The stages of the model here.
  const parallel::Pipeline* pipeline = &parallel::Pipeline::Whole();
};

// One replica's share of one optimizer step.
struct StepInput {
  virtual ~StepInput() = default;
  // The rows to pull of each of the job's tables, distinct and ascending. Empty if no server holds
  // rows.
  std::vector<std::vector<uint64_t>> ids;
  int64_t global_samples = 0;  // of the whole batch, over all replicas
  int64_t global_tokens = 0;
  int64_t global_targets = 0;  // divisor of the summed loss
  double flops = 0;  // of the share's products, forward and backward (models/model_flops.h)

  // Returns the arrays of all parts, in a fixed order. Prepare leaves them in host memory.
  virtual std::vector<Tensor*> Tensors() { return {}; }
};

struct Evaluation {
  std::map<std::string, double> metrics;  // "hr@10", "sampled_ndcg@10", "loss", ...
  double selection = 0;                   // higher is better; decides the best evaluation
  std::string decides;                    // metric whose value, or negated value, is `selection`
};

enum class EvaluationSplit { VALID, TEST };

// Arguments of an evaluation. An evaluation computes in f32, whatever the training uses.
struct EvaluationArgs {
  Stream* stream = nullptr;
  // Limits each wait for servers or peers, but not the computation in between.
  absl::Duration timeout = absl::InfiniteDuration();
  // Returns true to break the evaluation off; its result then means nothing. Collective. Called
  // before every block. Null: never breaks off.
  std::function<absl::StatusOr<bool>()> stop_agreed = nullptr;
  // Receives a line without its newline for each of this replica's examples, in order.
  std::function<void(const std::string& line)> dump = nullptr;
};

class ItemScorer;

// The largest matrix product of a step, [rows, in] x [in, out].
struct LargestProduct {
  int64_t rows = 0, in = 0, out = 0;
};

class Task {
 public:
  // The rules of the kind of model that a task trains (job/model_rules.h). A task class hides those
  // that it has of its own. By default a job has at most one table, which is on servers, and the
  // lowest loss is the best.
  static void Check(const Job& job, Limits* limits);
  static void Resolve(Job* job);
  // Reads the options of a custom model, and refuses values that exclude each other. A job may give
  // no others. Check does not read options.
  static void Options(job::CustomOptions&) {}
  static void ClearTrainingFields(Model*) {}
  static constexpr Job::Placement kOldPlacement = Job::PS;
  // REQUIRES: if true, Bf16Product returns a product.
  static constexpr bool kHasBf16 = false;
  // True if TaskEnvironment.tp may cut the model.
  static constexpr bool kIsCut = false;
  // The layers that TaskEnvironment.pipeline may divide among stages; 0: it is one stage.
  static int NumLayers(const Model&) { return 0; }
  // REQUIRES: if true, scorer() returns the scores, and the data is SequenceData.
  static constexpr bool kRanksItems = false;
  // True if an item that training never saw is told by its title.
  static bool ReadsTitles(const Job&) { return false; }
  // A model that writes text hides this with a function.
  static constexpr MakeTextDecoder MakeDecoder = nullptr;

  virtual ~Task() = default;
  virtual int64_t steps_per_epoch() const = 0;
  // Prepares the input of `step`, which counts from 1 over all epochs.
  virtual std::unique_ptr<StepInput> Prepare(int64_t step) const = 0;
  // The functions of a step take part `part` of the input. `rows` are the rows of input.ids, one
  // variable per table. REQUIRES: the input's arrays lie where the stream computes.
  //
  // The layers of chunk `chunk` of this rank, and what passes between stages
  // (parallel/pipeline/graph_stages.h). By default there is one stage, whose work is all in
  // LossSum.
  virtual parallel::ArrayType RowsOf(const StepInput&, int /*part*/) const { return {}; }
  virtual Variable StageRows(Context&, const StepInput&, int /*part*/,
                             absl::Span<const Variable> /*rows*/, int /*chunk*/,
                             const Variable& /*before*/) const {
    return Variable();
  }
  // Returns the summed loss. `hidden` is what StageRows gave in the last stage.
  virtual Variable LossSum(Context& context, const StepInput& input, int part,
                           absl::Span<const Variable> rows, const Variable& hidden) const = 0;
  // The same of a model in one stage.
  Variable WholeLossSum(Context& context, const StepInput& input, int part,
                        absl::Span<const Variable> rows) const {
    return LossSum(context, input, part, rows,
                   StageRows(context, input, part, rows, /*chunk=*/0, Variable()));
  }
  // Evaluates a split. Returns no metrics if the task has no such split. If a loss or a score is
  // not finite, `selection` is not finite either. Collective over all replicas, which get the same
  // result.
  virtual absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split,
                                              const EvaluationArgs& args) = 0;
  // Returns the scores that rank items (tasks/ranking_evaluation.h); null if the task ranks none.
  virtual ItemScorer* scorer() { return nullptr; }
  // Returns the product by which a run that may compute in bf16 judges bf16. Nothing: the task
  // computes in f32.
  virtual std::optional<LargestProduct> Bf16Product() const { return std::nullopt; }
};

}  // namespace tandem::tasks
