#include "trainer/parallel/gradient_buckets.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"

namespace tandem::parallel {

absl::StatusOr<std::unique_ptr<GradientBuckets>> GradientBuckets::Create(
    const ParameterSet& parameters, const FlatLayout& layout, Stream* stream,
    GradientBucketOptions options, OnComplete on_complete) {
  std::unique_ptr<GradientBuckets> made(
      new GradientBuckets(stream, std::move(options), std::move(on_complete)));
  made->buckets_.resize(layout.size());
  for (size_t b = 0; b < layout.size(); ++b) {
    Bucket& bucket = made->buckets_[b];
    bucket.record = layout[b].record;
    bucket.num_bytes = layout[b].num_bytes;
    bucket.view = ArrayView(nullptr, parameters.dtype(), Shape{0});
    for (const FlatMember& member : layout[b].members) bucket.members.push_back(Member{member});
    if (made->options_.allocate) {
      ASSIGN_OR_RETURN(auto memory, made->options_.allocate(bucket.num_bytes));
      made->SetMemory(bucket, std::move(memory));
    } else if (!made->options_.on_demand) {
      made->SetMemory(bucket, Buffer::Allocate(bucket.num_bytes, parameters.device()));
    }
    for (size_t m = 0; m < bucket.members.size(); ++m) {
      LeafNode& leaf = bucket.members[m].parameter->variable.leaf();
      if (made->options_.on_demand) {
        leaf.PlaceGradientLater([made = made.get(), &bucket, m] {
          if (bucket.memory == nullptr)
            made->SetMemory(bucket, Buffer::Allocate(bucket.num_bytes, made->stream_->device()));
          return made->PlaceOf(bucket, bucket.members[m]);
        });
      } else {
        leaf.PlaceGradient(made->PlaceOf(bucket, bucket.members[m]));
      }
      leaf.set_hook([made = made.get(), b, m](Context& context) {
        const bool last = ++made->buckets_[b].members[m].passes == made->num_passes_;
        if (last || made->options_.every_pass) made->OnGradient(context, b, m);
      });
    }
  }
  return made;
}

void GradientBuckets::SetMemory(Bucket& bucket, std::shared_ptr<Buffer> memory) const {
  const DType dtype = bucket.members.front().parameter->variable.dtype();
  bucket.memory = std::move(memory);
  bucket.view = ArrayView(bucket.memory->data(), dtype,
                          Shape{static_cast<int64_t>(bucket.num_bytes / SizeOf(dtype))});
  kernels::Fill(bucket.view, 0, *stream_);  // the gaps between gradients travel too
}

Tensor GradientBuckets::PlaceOf(const Bucket& bucket, const Member& member) const {
  return Tensor::InBuffer(bucket.memory, member.offset, member.parameter->shape(),
                          member.parameter->variable.dtype());
}

GradientBuckets::~GradientBuckets() {
  for (const Bucket& bucket : buckets_) {
    for (const Member& member : bucket.members) {
      member.parameter->variable.leaf().set_hook(nullptr);
      if (options_.on_demand) member.parameter->variable.leaf().PlaceGradientLater(nullptr);
    }
  }
}

uint64_t GradientBuckets::num_bytes() const {
  uint64_t bytes = 0;
  for (const Bucket& bucket : buckets_) bytes += bucket.memory ? bucket.memory->num_bytes() : 0;
  return bytes;
}

void GradientBuckets::ExpectAll() {
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<int>(bucket.members.size());
    for (Member& member : bucket.members) member.complete = false;
  }
}

void GradientBuckets::BeginStep(int num_passes) {
  num_passes_ = num_passes;
  for (Bucket& bucket : buckets_) {
    for (Member& member : bucket.members) {
      member.parameter->variable.leaf().ClearGradient();
      member.passes = 0;
    }
  }
  ExpectAll();
}

void GradientBuckets::BeginPass(int pass) {
  if (options_.every_pass && pass > 0) ExpectAll();
}

void GradientBuckets::Release(size_t number) {
  Bucket& bucket = buckets_[number];
  TANDEM_CHECK(options_.on_demand && bucket.missing == 0);
  for (const Member& member : bucket.members) member.parameter->variable.leaf().AcceptPart({});
  bucket.memory = nullptr;
  bucket.view = ArrayView(nullptr, bucket.view.dtype, Shape{0});
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
