#include "trainer/loop/replica/state_bytes.h"

#include <set>

#include "absl/strings/str_cat.h"

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
    sum.Add(parameter->variable.value());
    sum.Add(parameter->variable.leaf().shadow());
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

}  // namespace

StateBytes StateBytesOf(const ParameterSet& parameters, const parallel::GradientSync& sync,
                        const optim::DenseOptimizer& dense) {
  return {WeightBytes(parameters), sync.gradient_bytes(), SlotBytes(parameters, dense)};
}

absl::Status CheckMemory(const ParameterSet& parameters, const optim::DenseOptimizer& dense,
                         uint64_t limit) {
  if (limit == 0) return absl::OkStatus();
  StateBytes need{WeightBytes(parameters), 0, SlotBytes(parameters, dense)};
  for (const auto& parameter : parameters.all()) {
    need.gradients +=
        static_cast<uint64_t>(parameter->num_elements()) * SizeOf(parameter->variable.dtype());
  }
  if (need.total() <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "parallel.memory_bytes is ", limit, ", but a rank of this layout needs ", need.total(),
      ": weights ", need.weights, ", gradients ", need.gradients, ", optimizer slots ", need.slots,
      "; allowed: at least that, 0 for no limit, or a layout with more tp or zero"));
}

}  // namespace tandem::loop
