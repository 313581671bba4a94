// What the training loop trains: batches, a loss over them and an evaluation. The loop knows nothing else of a model.
// Thread rule: Prepare from any thread; the rest from the step's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/autograd/parameter.h"
#include "trainer/comm/process_group.h"
#include "trainer/sparse/remote_embedding.h"

namespace tandem::tasks {

// What a replica gives its task. Everything outlives the task.
struct TaskEnvironment {
  ParameterSet* parameters = nullptr;
  sparse::RemoteEmbedding* table = nullptr;  // the embedding rows on parameter servers; null: they are a dense parameter
  comm::ProcessGroup* group = nullptr;
};

// One replica's share of one optimizer step.
struct StepInput {
  virtual ~StepInput() = default;
  std::vector<uint64_t> ids;   // rows to pull, distinct and ascending
  int64_t global_samples = 0;  // of the whole batch, all replicas
  int64_t global_tokens = 0;
  int64_t global_targets = 0;  // what the summed loss is divided by
  double flops = 0;  // of the share's products, forward and backward (models/model_flops.h)

  // The arrays of all parts, in a fixed order. Prepare leaves them in the host's memory.
  virtual std::vector<Tensor*> Tensors() { return {}; }
};

struct Evaluation {
  std::map<std::string, double> metrics;  // "hr@10", "sampled_ndcg@10", "loss", ...
  double selection = 0;                   // higher is better: which evaluation is best
  std::string decides;                    // the metric that `selection` is, or is the negative of
};

enum class EvaluationSplit { VALID, TEST };

// What an evaluation is run with; it computes in f32 whatever the training does.
struct EvaluationArgs {
  Stream* stream = nullptr;
  absl::Duration timeout = absl::InfiniteDuration();  // of each wait for servers or peers; what is computed between them may last
  // Collective: whether to break the evaluation off, whose result then means nothing. Asked before every block. Null: never.
  std::function<absl::StatusOr<bool>()> stop_agreed = nullptr;
  std::function<void(const std::string& line)> dump = nullptr;  // a line without its end for each of this replica's examples, in order
};

class Task {
 public:
  virtual ~Task() = default;
  virtual int64_t steps_per_epoch() const = 0;
  // `step` counts from 1 over all epochs.
  virtual std::unique_ptr<StepInput> Prepare(int64_t step) const = 0;
  // The summed loss of part `part` of the input, whose arrays lie where the stream computes. `rows` are input.ids' rows; undefined
  // without a table.
  virtual Variable LossSum(Context& context, const StepInput& input, int part, const Variable& rows) const = 0;
  // Collective over all replicas, which get the same result. No metrics where a task has no such split. With a loss or a score that is not
  // finite, `selection` is not finite either.
  virtual absl::StatusOr<Evaluation> Evaluate(EvaluationSplit split, const EvaluationArgs& args) = 0;
};

}  // namespace tandem::tasks
