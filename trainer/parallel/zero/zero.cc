#include "trainer/parallel/zero/zero.h"

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"

namespace tandem::parallel {

FlatLayout ZeroLayout(const std::vector<Parameter*>& parameters, int num_replicas, int stage) {
  // Each part begins at a multiple of 64 bytes.
  return LayOut(parameters, {.unit_bytes = size_t{64} * static_cast<size_t>(num_replicas),
                             .by_block = stage == 3});
}

absl::StatusOr<std::unique_ptr<Zero>> Zero::Create(ParameterSet* parameters,
                                                   const FlatLayout& layout,
                                                   comm::ProcessGroup* group,
                                                   const HolderGroups* holders, Stream* stream,
                                                   const ZeroOptions& options) {
  std::unique_ptr<Zero> zero(new Zero(parameters, group, holders, stream, options));
  GradientBucketOptions gradients;
  gradients.on_demand = zero->cuts_gradients();
  gradients.every_pass = zero->cuts_gradients() && options.sum_every_pass;
  RETURN_IF_ERROR(zero->PlaceGradients(*parameters, layout, std::move(gradients)));
  if (zero->cuts_gradients()) zero->MakeParts(layout);
  if (options.stage < 3) {
    zero->MoveWeights(layout);
  } else {
    zero->gathered_ = std::make_unique<GatheredWeights>(
        parameters, layout,
        GatheredWeightsOptions{.group = group, .stream = stream, .timeout = options.timeout});
  }
  RETURN_IF_ERROR(stream->Wait());
  return zero;
}

void Zero::MoveWeights(const FlatLayout& layout) {
  const DType dtype = parameters_->dtype();
  for (const FlatBucket& bucket : layout) {
    const std::shared_ptr<Buffer> memory =
        Buffer::Allocate(bucket.num_bytes, parameters_->device());
    weights_.push_back(Tensor::InBuffer(
        memory, 0, Shape{static_cast<int64_t>(bucket.num_bytes / SizeOf(dtype))}, dtype));
    kernels::Fill(weights_.back().view(), 0, stream());
    for (const FlatMember& member : bucket.members) {
      LeafNode& leaf = member.parameter->variable.leaf();
      const Tensor moved = Tensor::InBuffer(memory, member.offset, leaf.shape(), dtype);
      kernels::Copy(moved.view(), leaf.value().view(), stream());
      leaf.set_value(moved);
    }
  }
}

void Zero::MakeParts(const FlatLayout& layout) {
  const auto num_parts = static_cast<size_t>(group().size());
  for (const FlatBucket& bucket : layout) {
    const size_t elements = bucket.num_bytes / num_parts / SizeOf(parameters_->dtype());
    sums_.push_back(Tensor::Empty(Shape{static_cast<int64_t>(elements)}, parameters_->dtype(),
                                  parameters_->device()));
    pieces_.push_back(PiecesOfPart(bucket, group().rank(), group().size()));
  }
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

ArrayView Zero::SumOf(size_t bucket) const {
  return cuts_gradients() ? sums_[bucket].view() : OwnPart(gradients().buckets()[bucket].view);
}

comm::Work Zero::Sum(size_t bucket) {
  const ArrayView whole = gradients().buckets()[bucket].view;
  // Later passes' sums are added to those of the passes before.
  const ArrayView to = pass_of_sums() == 0 ? SumOf(bucket) : OwnPart(whole);
  return group().ReduceScatter(to, whole,
                               {.stream = &stream(), .tag = StableHash("zero") + bucket});
}

void Zero::TakeSum(size_t bucket, bool in_place) {
  if (!cuts_gradients()) return;
  const ArrayView to = sums_[bucket].view(), own = OwnPart(gradients().buckets()[bucket].view);
  if (pass_of_sums() > 0)
    kernels::Add(to, to, own, stream());
  else if (in_place)
    kernels::Copy(to, own, stream());
  gradients().Release(bucket);
  for (const FlatPiece& piece : pieces_[bucket]) {
    const auto first = static_cast<int64_t>(piece.offset / SizeOf(to.dtype));
    piece.parameter->variable.leaf().AcceptPart(
        {piece.begin, sums_[bucket].Rows(first, first + piece.count)});
  }
}

int Zero::pass_of_sums() const { return gradients().options().every_pass ? pass() : 0; }

void Zero::BeginStep(int num_passes) {
  BucketSync::BeginStep(num_passes);
  if (gathered_) gathered_->BeginPass();
}

void Zero::BeginPass(Context& context, int pass) {
  BucketSync::BeginPass(context, pass);
  if (gathered_ && pass > 0) gathered_->BeginPass();
}

void Zero::Finish(Context& context) {
  BucketSync::Finish(context);
  if (gathered_) context.Fail(gathered_->status());
}

uint64_t Zero::gradient_bytes() const {
  uint64_t bytes = BucketSync::gradient_bytes();
  for (const Tensor& sum : sums_) bytes += sum.num_bytes();
  return bytes;
}

void Zero::PullWeights(uint64_t /*step*/) {
  if (gathered_) return gathered_->Free();  // stale
  if (group().size() == 1) return;
  // The forward pass uses the last bucket first.
  for (size_t b = weights_.size(); b-- > 0;) {
    const ArrayView bucket = weights_[b].view();
    gathers_.push_back(group().AllGather(
        bucket, OwnPart(bucket), {.stream = &stream(), .tag = StableHash("zero weights") + b}));
  }
}

absl::Status Zero::AwaitWeights(absl::Time deadline) {
  if (gathered_) {
    gathered_->Free();  // an evaluation may have left some
    return gathered_->status();
  }
  if (gathers_.empty()) return absl::OkStatus();
  for (comm::Work& work : gathers_) RETURN_IF_ERROR(group().Await(work, deadline));
  gathers_.clear();
  parameters_->RefreshShadows(stream());
  return absl::OkStatus();
}

}  // namespace tandem::parallel
