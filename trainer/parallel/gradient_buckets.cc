#include "trainer/parallel/gradient_buckets.h"

#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"

namespace tandem::parallel {

absl::StatusOr<std::unique_ptr<GradientBuckets>> GradientBuckets::Create(
    const ParameterSet& parameters, const FlatLayout& layout, Stream* stream,
    const AllocateBucket& allocate, OnComplete on_complete) {
  std::unique_ptr<GradientBuckets> made(new GradientBuckets(stream, std::move(on_complete)));
  const size_t element = SizeOf(parameters.dtype());
  for (size_t b = 0; b < layout.size(); ++b) {
    Bucket& bucket = made->buckets_.emplace_back();
    bucket.record = layout[b].record;
    const size_t size = layout[b].num_bytes;
    if (allocate) {
      ASSIGN_OR_RETURN(bucket.memory, allocate(size));
    } else {
      bucket.memory = Buffer::Allocate(size, parameters.device());
    }
    bucket.view = ArrayView(bucket.memory->data(), parameters.dtype(),
                            Shape{static_cast<int64_t>(size / element)});
    kernels::Fill(bucket.view, 0, *stream);  // the gaps between gradients travel too
    for (size_t m = 0; m < layout[b].members.size(); ++m) {
      const Member& member = bucket.members.emplace_back(Member{layout[b].members[m]});
      LeafNode& leaf = member.parameter->variable.leaf();
      leaf.PlaceGradient(Tensor::InBuffer(bucket.memory, member.offset, member.parameter->shape(),
                                          parameters.dtype()));
      leaf.set_hook([made = made.get(), b, m](Context& context) {
        if (made->last_pass_) made->OnGradient(context, b, m);
      });
    }
  }
  return made;
}

GradientBuckets::~GradientBuckets() {
  for (const Bucket& bucket : buckets_) {
    for (const Member& member : bucket.members) member.parameter->variable.leaf().set_hook(nullptr);
  }
}

uint64_t GradientBuckets::num_bytes() const {
  uint64_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += bucket.memory->num_bytes();
  return bytes;
}

void GradientBuckets::BeginStep(int num_passes) {
  num_passes_ = num_passes;
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<int>(bucket.members.size());
    for (Member& member : bucket.members) {
      member.parameter->variable.leaf().ClearGradient();
      member.complete = false;
    }
  }
}

void GradientBuckets::OnGradient(Context& context, size_t number, size_t m) {
  Member& member = buckets_[number].members[m];
  LeafNode& leaf = member.parameter->variable.leaf();
  // No path from this replica's loss leads here, but zeros still take part in the sum.
  if (!leaf.has_gradient()) {
    leaf.AcceptStorage();
    kernels::Fill(leaf.gradient().view(), 0, *stream_);
  }
  TANDEM_CHECK(!member.complete) << member.parameter->name << " had two gradients in one pass";
  member.complete = true;
  if (--buckets_[number].missing == 0) on_complete_(context, number);
}

void GradientBuckets::AcceptGradients() {
  for (Bucket& bucket : buckets_) {
    for (Member& member : bucket.members) {
      member.parameter->variable.leaf().AcceptStorage();
      member.complete = true;
    }
    bucket.missing = 0;
  }
}

void GradientBuckets::Finish(Context& context) {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].missing == 0) continue;
    for (size_t m = 0; m < buckets_[b].members.size(); ++m) {
      if (!buckets_[b].members[m].complete) OnGradient(context, b, m);
    }
  }
}

}  // namespace tandem::parallel
