// A rank's place in a pipeline: the schedule of its training steps, its stages and its edges. A
// model that is not cut is a pipeline of one stage.
// Thread rule: constant after construction; the edges are the step's thread's.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/autograd/parameter_slice.h"
#include "trainer/parallel/pipeline/edges.h"
#include "trainer/parallel/pipeline/graph_stages.h"
#include "trainer/parallel/pipeline/stage_split.h"
#include "trainer/parallel/pipeline/verifier.h"

namespace tandem::parallel {

struct PipelineOptions {
  ScheduleOptions schedule;
  Recompute recompute = Recompute::NONE;
  std::vector<int> layers_per_stage;  // by stage; empty: of about equal work
};

class Pipeline {
 public:
  // One stage with one microbatch: a model that is whole.
  Pipeline();
  static const Pipeline& Whole();
  // Writes the schedule down and verifies it; returns what the verifier says against it. Makes the
  // edges. Collective over `stages`, the ranks of the pipeline in order, whose arrays lie where the
  // model computes.
  static absl::StatusOr<Pipeline> Create(const PipelineOptions& options, comm::ProcessGroup& stages,
                                         absl::Time deadline);

  const PipelineSchedule& schedule() const { return schedule_; }
  const ScheduleReport& report() const { return report_; }  // with equal costs of all works
  int rank() const { return rank_; }
  int num_chunks() const { return schedule_.num_chunks; }
  Recompute recompute() const { return recompute_; }
  const PipelineEdges& edges() const { return edges_; }
  bool has_first_stage() const { return rank_ == 0; }
  bool has_last_stage() const { return rank_ + 1 == schedule_.num_ranks(); }
  bool has_an_end() const { return has_first_stage() || has_last_stage(); }
  bool is_whole() const { return has_first_stage() && has_last_stage(); }
  // The layers of each chunk of this rank, of all layers.
  // REQUIRES: there are at least as many layers as stages; given layers_per_stage add up to them.
  std::vector<IndexRange> LayersHere(const LayersWork& work) const;

 private:
  PipelineSchedule schedule_;
  ScheduleReport report_;
  int rank_ = 0;
  Recompute recompute_ = Recompute::NONE;
  std::vector<int> layers_per_stage_;
  PipelineEdges edges_;
};

// Runs the forwards of microbatches 0 .. num_microbatches - 1 through all stages, for an
// evaluation. `take` gets the last stage's rows, in the order of microbatches, where they are.
// Collective over the pipeline.
absl::Status RunForwards(const Pipeline& pipeline, int num_microbatches, StageLayers& layers,
                         Context& context,
                         const std::function<void(int microbatch, const Variable& rows)>& take);

}  // namespace tandem::parallel
