#include "trainer/parallel/zero/zero.h"

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"

namespace tandem::parallel {

FlatLayout ZeroLayout(const std::vector<Parameter*>& parameters, int num_replicas) {
  // Each part begins at a multiple of 64 bytes.
  return LayOut(parameters, {.unit_bytes = size_t{64} * static_cast<size_t>(num_replicas)});
}

absl::StatusOr<std::unique_ptr<Zero>> Zero::Create(ParameterSet* parameters,
                                                   const FlatLayout& layout,
                                                   comm::ProcessGroup* group,
                                                   const HolderGroups* holders, Stream* stream) {
  std::unique_ptr<Zero> zero(new Zero(parameters, group, holders, stream));
  RETURN_IF_ERROR(zero->PlaceGradients(*parameters, layout, /*allocate=*/nullptr));
  const DType dtype = parameters->dtype();
  for (const FlatBucket& bucket : layout) {
    const std::shared_ptr<Buffer> memory = Buffer::Allocate(bucket.num_bytes, parameters->device());
    zero->weights_.push_back(Tensor::InBuffer(
        memory, 0, Shape{static_cast<int64_t>(bucket.num_bytes / SizeOf(dtype))}, dtype));
    kernels::Fill(zero->weights_.back().view(), 0, *stream);
    for (const FlatMember& member : bucket.members) {
      LeafNode& leaf = member.parameter->variable.leaf();
      const Tensor moved = Tensor::InBuffer(memory, member.offset, leaf.shape(), dtype);
      kernels::Copy(moved.view(), leaf.value().view(), *stream);
      leaf.set_value(moved);
    }
  }
  RETURN_IF_ERROR(stream->Wait());
  return zero;
}

Zero::~Zero() {
  for (comm::Work& work : gathers_) {
    if (!work.done()) group().Await(work, absl::InfinitePast()).IgnoreError();
  }
}

ArrayView Zero::OwnPart(const ArrayView& bucket) const {
  const int64_t count = bucket.num_elements() / group().size();
  char* const begin = static_cast<char*>(bucket.data) +
                      static_cast<size_t>(group().rank() * count) * SizeOf(bucket.dtype);
  return ArrayView(begin, bucket.dtype, Shape{count});
}

comm::Work Zero::Sum(const GradientBuckets::Bucket& bucket, size_t number) {
  return group().ReduceScatter(OwnPart(bucket.view), bucket.view,
                               {.stream = &stream(), .tag = StableHash("zero") + number});
}

void Zero::PullWeights(uint64_t /*step*/) {
  if (group().size() == 1) return;
  // The forward pass uses the last bucket first.
  for (size_t b = weights_.size(); b-- > 0;) {
    const ArrayView bucket = weights_[b].view();
    gathers_.push_back(group().AllGather(
        bucket, OwnPart(bucket), {.stream = &stream(), .tag = StableHash("zero weights") + b}));
  }
}

absl::Status Zero::AwaitWeights(absl::Time deadline) {
  if (gathers_.empty()) return absl::OkStatus();
  for (comm::Work& work : gathers_) RETURN_IF_ERROR(group().Await(work, deadline));
  gathers_.clear();
  parameters_->RefreshShadows(stream());
  return absl::OkStatus();
}

}  // namespace tandem::parallel
