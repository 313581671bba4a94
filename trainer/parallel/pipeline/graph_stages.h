// Runs a rank's stages as graphs of autograd: a forward keeps the graph of its microbatch, the
// backward runs the graph with the gradient that arrived.
// The last stage computes loss and head only when its backward is due, so that no microbatch waits
// with a gradient of the head. A model in one stage, where none waits, computes them in forward.
// Thread rule: the step's thread.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "trainer/autograd/engine.h"
#include "trainer/parallel/pipeline/executor.h"

namespace tandem::parallel {

struct ArrayType {
  Shape shape;
  DType dtype = DType::F32;
};

// The layers of a rank, chunk by chunk.
class StageLayers {
 public:
  virtual ~StageLayers() = default;
  // The rows between two stages, which are those of the microbatch in every stage.
  virtual ArrayType RowsOf(int microbatch) const = 0;
  // `before`: the rows of the stage before; undefined in the first stage.
  virtual Variable Forward(Context& context, int chunk, int microbatch, const Variable& before) = 0;
};

// Memory for the rows of a microbatch.
Tensor RowsFor(const StageLayers& layers, int microbatch, Context& context);

class StageModel : public StageLayers {
 public:
  // The summed loss of the last stage's rows.
  virtual Variable Loss(Context& context, int microbatch, const Variable& rows) = 0;
};

// FULL: a forward keeps its input alone, and the backward runs it again (Chen et al. 2016).
enum class Recompute : uint8_t { NONE, FULL };

class GraphStages final : public StageRunner {
 public:
  // All arguments outlive the object, which serves one step.
  GraphStages(const PipelineSchedule& schedule, int rank, Recompute recompute, StageModel* model,
              Context* context);

  StageArrays ForInput(int chunk, int microbatch) override;
  StageArrays ForOutputGradient(int chunk, int microbatch) override;
  absl::StatusOr<StageArrays> Forward(int chunk, int microbatch, StageArrays input) override;
  absl::StatusOr<StageArrays> Backward(int chunk, int microbatch, StageArrays gradient,
                                       bool weights) override;
  absl::Status BackwardWeight(int chunk, int microbatch) override;

  // The summed losses by microbatch, where the stream computes; of the last stage's rank.
  const std::vector<Tensor>& losses() const { return losses_; }
  // The most microbatches of chunks that were alive at once.
  int peak_live() const { return peak_live_; }

 private:
  struct Live {
    Variable input;   // undefined: none
    Variable output;  // of the last stage, which needs the value; else undefined
    // The graph of a stage before, whose value is sent and then nobody's; null: frozen, or to be
    // computed again.
    std::shared_ptr<Node> graph;
    bool is_computed = false;
    DeferredWeights deferred;
  };
  // Runs the layers of a chunk. Returns their value.
  Tensor Compute(int chunk, int microbatch, Live& live);
  int StageOf(int chunk) const { return schedule_.StageOf(rank_, chunk); }
  bool IsLast(int chunk) const { return StageOf(chunk) + 1 == schedule_.num_stages(); }
  Live& At(int chunk, int microbatch);

  const PipelineSchedule& schedule_;
  const int rank_;
  const Recompute recompute_;
  StageModel& model_;
  Context& context_;
  std::map<std::pair<int, int>, Live> live_;  // by chunk and microbatch
  std::vector<Tensor> losses_;
  int peak_live_ = 0;
};

}  // namespace tandem::parallel
