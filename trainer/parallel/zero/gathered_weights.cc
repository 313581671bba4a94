#include "trainer/parallel/zero/gathered_weights.h"

#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/elementwise.h"

namespace tandem::parallel {

GatheredWeights::GatheredWeights(ParameterSet* parameters, const FlatLayout& layout,
                                 const GatheredWeightsOptions& options)
    : parameters_(parameters), options_(options) {
  for (const FlatBucket& bucket : layout) Keep(bucket);
}

void GatheredWeights::Keep(const FlatBucket& bucket) {
  const DType dtype = parameters_->dtype();
  const int size = options_.group->size(), rank = options_.group->rank();
  const size_t part_bytes = bucket.num_bytes / static_cast<size_t>(size);
  Bucket kept;
  kept.layout = bucket;
  kept.part = Tensor::Empty(Shape{static_cast<int64_t>(part_bytes / SizeOf(dtype))}, dtype,
                            parameters_->device());
  kernels::Fill(kept.part.view(), 0, *options_.stream);  // the gaps travel too
  for (const FlatPiece& piece : PiecesOfPart(bucket, rank, size)) {
    LeafNode& leaf = piece.parameter->variable.leaf();
    const auto first = static_cast<int64_t>(piece.offset / SizeOf(dtype));
    const Tensor own = kept.part.Rows(first, first + piece.count);
    const Tensor initial =
        leaf.held_value().defined()
            ? leaf.ValueElements(piece.begin, piece.count)
            : parameters_->InitialElements(*piece.parameter, piece.begin, piece.count);
    kernels::Copy(own.view(), initial.view(), *options_.stream);
    leaf.KeepPart({piece.begin, own});
  }
  for (const FlatMember& member : bucket.members) {
    LeafNode& leaf = member.parameter->variable.leaf();
    leaf.set_value(Tensor());
    leaf.set_on_read([this, block = bucket.block] { OnRead(block); });
  }
  blocks_[bucket.block].buckets.push_back(std::move(kept));
}

GatheredWeights::~GatheredWeights() {
  for (auto& [number, block] : blocks_) {
    for (const comm::Work& work : block.gathers) {
      if (!work.done()) options_.group->Await(work, absl::InfinitePast()).IgnoreError();
    }
    for (const Bucket& bucket : block.buckets) {
      for (const FlatMember& member : bucket.layout.members)
        member.parameter->variable.leaf().set_on_read(nullptr);
    }
  }
}

void GatheredWeights::Follow(int block) {
  next_[{before_, current_}] = block;
  before_ = current_;
  current_ = block;
}

void GatheredWeights::StartNext() {
  const auto found = next_.find({before_, current_});
  if (found != next_.end() && found->second != kNone) Start(found->second);
}

void GatheredWeights::OnRead(int number) {
  if (number == whole_) return;
  Follow(number);
  FreeBlock(&whole_);
  Start(number);
  std::swap(whole_, arriving_);
  Await(blocks_.at(whole_));
  StartNext();
}

void GatheredWeights::BeginPass() {
  if (current_ != kNone) Follow(kNone);
  StartNext();
}

void GatheredWeights::Start(int number) {
  if (number == whole_ || number == arriving_) return;
  FreeBlock(&arriving_);
  arriving_ = number;
  Block& block = blocks_.at(number);
  for (Bucket& bucket : block.buckets) {
    const auto elements =
        static_cast<int64_t>(bucket.layout.num_bytes / SizeOf(parameters_->dtype()));
    bucket.whole = Tensor::Empty(Shape{elements}, parameters_->dtype(), parameters_->device());
    if (!status_.ok()) continue;
    block.gathers.push_back(options_.group->AllGather(
        bucket.whole.view(), bucket.part.view(),
        {.stream = options_.stream,
         .tag = StableHash("weights of a block") + static_cast<uint64_t>(number)}));
  }
}

void GatheredWeights::Await(Block& block) {
  for (const comm::Work& work : block.gathers) {
    const absl::Status status = options_.group->Await(work, absl::Now() + options_.timeout);
    if (status_.ok()) status_ = status;
  }
  block.gathers.clear();
  for (const Bucket& bucket : block.buckets) {
    for (const FlatMember& member : bucket.layout.members) {
      LeafNode& leaf = member.parameter->variable.leaf();
      if (leaf.held_value().defined()) continue;
      leaf.set_value(Tensor::InBuffer(bucket.whole.buffer(), member.offset, leaf.shape(),
                                      parameters_->dtype()));
      parameters_->RefreshShadow(*member.parameter, *options_.stream);
    }
  }
}

void GatheredWeights::FreeBlock(int* number) {
  if (*number == kNone) return;
  Block& block = blocks_.at(*number);
  Await(block);  // it may be on its way
  for (Bucket& bucket : block.buckets) {
    for (const FlatMember& member : bucket.layout.members) {
      member.parameter->variable.leaf().set_value(Tensor());
      member.parameter->variable.leaf().set_shadow(Tensor());
    }
    bucket.whole = Tensor();
  }
  *number = kNone;
}

void GatheredWeights::Free() {
  FreeBlock(&whole_);
  FreeBlock(&arriving_);
  before_ = current_ = kNone;
}

}  // namespace tandem::parallel
