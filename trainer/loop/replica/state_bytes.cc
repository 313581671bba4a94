#include "trainer/loop/replica/state_bytes.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "proto/job.pb.h"
#include "trainer/loop/replica/make_gradient_sync.h"

namespace tandem::loop {

namespace {

// Adds up buffers, each once however many tensors share it.
class BufferSum {
 public:
  void Add(const Tensor& tensor) {
    if (tensor.defined() && known_.insert(tensor.buffer().get()).second)
      bytes_ += tensor.buffer()->num_bytes();
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::set<const Buffer*> known_;
  uint64_t bytes_ = 0;
};

uint64_t WeightBytes(const ParameterSet& parameters) {
  BufferSum sum;
  for (const auto& parameter : parameters.all()) {
    const LeafNode& leaf = parameter->variable.leaf();
    sum.Add(leaf.held_value());
    sum.Add(leaf.value_part().elements);
    sum.Add(leaf.held_shadow());
  }
  return sum.bytes();
}

uint64_t SlotBytes(const ParameterSet& parameters, const optim::DenseOptimizer& dense) {
  BufferSum sum;
  for (size_t p = 0; p < parameters.all().size(); ++p) {
    for (const Tensor& slot : dense.slots(p)) sum.Add(slot);
  }
  return sum.bytes();
}

// The memory of the state under a stage of ZeRO, before gradients have memory.
StateBytes NeedOf(const ParameterSet& parameters, const optim::DenseOptimizer& dense, int stage) {
  const uint64_t element = SizeOf(parameters.dtype()),
                 parts = element * static_cast<uint64_t>(dense.num_updated());
  uint64_t whole = 0;
  for (const auto& parameter : parameters.all())
    whole += element * static_cast<uint64_t>(parameter->num_elements());
  return {stage >= 3 ? parts : whole, stage >= 2 ? parts : whole, SlotBytes(parameters, dense)};
}

}  // namespace

StateBytes StateBytesOf(const ParameterSet& parameters, const parallel::GradientSync& sync,
                        const optim::DenseOptimizer& dense) {
  return {WeightBytes(parameters), sync.gradient_bytes(), SlotBytes(parameters, dense)};
}

absl::Status CheckStageNeeds(const Job& job, const StageNeeds& mine, comm::ProcessGroup& world,
                             absl::Time deadline) {
  const auto limit = static_cast<uint64_t>(job.parallel().memory_bytes());
  if (limit == 0) return absl::OkStatus();
  const int size = world.size(), rank = world.rank();
  std::vector<uint64_t> needs(static_cast<size_t>(3 * size), 0);
  needs[3 * rank] = mine.state;
  needs[3 * rank + 1] = mine.activations;
  needs[3 * rank + 2] = mine.num_live;
  RETURN_IF_ERROR(world.Await(world.AllReduce(DenseView(needs.data(), Shape{int64_t{3} * size}),
                                              {.tag = StableHash("memory")}),
                              deadline));
  uint64_t most = 0;
  std::string ranks;
  for (int r = 0; r < size; ++r) {
    const uint64_t state = needs[3 * r], activations = needs[3 * r + 1], live = needs[3 * r + 2];
    most = std::max(most, state + activations);
    absl::StrAppend(&ranks, "\n  rank ", r, " needs ", state + activations,
                    ": weights, gradients and slots ", state);
    if (live > 0)
      absl::StrAppend(&ranks, ", activations of ", live, " live microbatches ", activations);
  }
  if (most <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "parallel.memory_bytes is ", limit, ", but with parallel.schedule ",
      Parallel::Schedule_Name(job.parallel().schedule()), ranks, "\nallowed: at least ", most,
      ", 0 for no limit, more parallel.microbatches, or parallel.recompute FULL"));
}

absl::Status CheckMemory(const Job& job, const ParameterSet& parameters,
                         const optim::DenseOptimizer& dense, comm::ProcessGroup& world,
                         absl::Time deadline) {
  const auto limit = static_cast<uint64_t>(job.parallel().memory_bytes());
  if (limit == 0) return absl::OkStatus();
  const StateBytes need = NeedOf(parameters, dense, ZeroStageOf(job));
  if (job.parallel().pp() > 1)
    return CheckStageNeeds(job, {.state = need.total()}, world, deadline);
  if (need.total() <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "parallel.memory_bytes is ", limit, ", but a rank of this layout needs ", need.total(),
      ": weights ", need.weights, ", gradients ", need.gradients, ", optimizer slots ", need.slots,
      "; allowed: at least that, 0 for no limit, or a layout with more tp or zero"));
}

bool HasRoomForGradients(const Job& job, const ParameterSet& parameters,
                         const optim::DenseOptimizer& dense) {
  StateBytes need = NeedOf(parameters, dense, ZeroStageOf(job));
  need.gradients = NeedOf(parameters, dense, /*stage=*/0).gradients;
  return need.total() <= static_cast<uint64_t>(job.parallel().memory_bytes());
}

}  // namespace tandem::loop
