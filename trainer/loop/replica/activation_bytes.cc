#include "trainer/loop/replica/activation_bytes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/memory/block_cache.h"
#include "trainer/loop/replica/state_bytes.h"

namespace tandem::loop {

namespace {

struct ActivationBytes {
  uint64_t rows = 0;    // what a chunk receives of a microbatch
  uint64_t chunk = 0;   // what the graph of a microbatch keeps in the largest chunk
  uint64_t chunks = 0;  // in all chunks here
  uint64_t loss = 0;    // beside these, while a backward pass begins
};

Tensor Zeros(Context& context, const Shape& shape, DType dtype) {
  const Tensor zeros = context.Empty(shape, dtype);
  kernels::Fill(zeros.view(), 0, context.stream());
  return zeros;
}

// The rows of the step's tables, all 0.
std::vector<Variable> RowsOf(const Replica& replica, const tasks::StepInput& input,
                             Context& context) {
  std::vector<Variable> rows;
  if (replica.tables == nullptr) return rows;
  for (size_t table = 0; table < input.ids.size(); ++table) {
    const Shape shape{static_cast<int64_t>(input.ids[table].size()),
                      replica.tables->tables()[table].dim};
    rows.push_back(Variable::Leaf(Zeros(context, shape, DType::F32), "rows"));
  }
  return rows;
}

// Runs the forward passes of the first step's first microbatch, which no other one is larger than
// by more than a sample.
absl::StatusOr<ActivationBytes> Measure(Replica& replica) {
  Context context({.stream = &replica.stream,
                   .seed = replica.job.seed(),
                   .step = 1,
                   .training = true,
                   .compute = replica.compute,
                   .deadline = replica.Deadline()});
  const auto input = replica.task->Prepare(1);
  for (Tensor* tensor : input->Tensors()) {
    if (tensor->defined()) *tensor = tensor->To(replica.stream.device(), replica.stream);
  }
  const std::vector<Variable> rows = RowsOf(replica, *input, context);
  const parallel::PipelineSchedule& schedule = replica.pipeline.schedule();
  const parallel::ArrayType type = replica.task->RowsOf(*input, /*part=*/0);
  const BlockCache& cache = *BlockCache::Of(replica.stream.device());
  ActivationBytes bytes;
  for (int chunk = 0; chunk < schedule.num_chunks; ++chunk) {
    const int stage = schedule.StageOf(replica.pipeline.rank(), chunk);
    const uint64_t before = cache.used_bytes();
    Variable input_rows;
    if (stage > 0)
      input_rows = Variable::Leaf(Zeros(context, type.shape, type.dtype), "stage input");
    const uint64_t with_rows = cache.used_bytes();
    Variable output = replica.task->StageRows(context, *input, /*part=*/0, rows, chunk, input_rows);
    const uint64_t with_graph = cache.used_bytes();
    bytes.rows = std::max(bytes.rows, with_rows - before);
    bytes.chunk = std::max(bytes.chunk, with_graph - before);
    bytes.chunks += with_graph - before;
    if (stage + 1 < schedule.num_stages()) continue;
    output = replica.task->LossSum(context, *input, /*part=*/0, rows, output);
    bytes.loss = cache.used_bytes() - with_graph;
  }
  if (context.failed()) return context.status();
  RETURN_IF_ERROR(replica.stream.status());
  return bytes;
}

// The microbatches of a chunk that are alive at once, times what each keeps.
uint64_t PeakOf(const ActivationBytes& bytes, const parallel::Pipeline& pipeline, int* num_live) {
  const int chunks = pipeline.num_chunks();
  *num_live = static_cast<int>(std::lround(pipeline.report().peak_live[pipeline.rank()] * chunks));
  const auto live = static_cast<uint64_t>(*num_live);
  return bytes.loss + (pipeline.recompute() == parallel::Recompute::FULL
                           ? live * bytes.rows + bytes.chunk
                           : live * bytes.chunks / static_cast<uint64_t>(chunks));
}

}  // namespace

absl::Status CheckPipelineMemory(Replica& replica) {
  if (replica.job.parallel().memory_bytes() == 0 || replica.mesh.shape().pp == 1)
    return absl::OkStatus();
  ASSIGN_OR_RETURN(const ActivationBytes activations, Measure(replica));
  int num_live = 0;
  const uint64_t peak = PeakOf(activations, replica.pipeline, &num_live);
  return CheckStageNeeds(
      replica.job,
      {.state = StateBytesOf(replica.parameters, *replica.sync, replica.dense).total(),
       .activations = peak,
       .num_live = static_cast<uint64_t>(num_live)},
      replica.world, replica.Deadline());
}

}  // namespace tandem::loop
