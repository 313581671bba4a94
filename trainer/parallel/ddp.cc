#include "trainer/parallel/ddp.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "kernels/elementwise.h"

namespace tandem::parallel {

namespace {
constexpr size_t kAlignment = 64;  // bytes between gradients of a bucket: vector loads stay aligned

size_t Rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
}  // namespace

absl::StatusOr<std::unique_ptr<Ddp>> Ddp::Create(ParameterSet* parameters, comm::ProcessGroup* group,
                                                 Stream* stream, const DdpOptions& options) {
  std::unique_ptr<Ddp> ddp(new Ddp(parameters, group, stream));
  RETURN_IF_ERROR(ddp->MakeBuckets(options));
  return ddp;
}

Ddp::~Ddp() {
  // Of a step that failed: nobody may touch the buckets any more.
  for (Bucket& bucket : buckets_) {
    for (comm::Work& work : bucket.work) {
      if (!work.done()) group_->Await(work, absl::InfinitePast()).IgnoreError();
    }
  }
  for (const auto& parameter : parameters_->all()) parameter->variable.leaf().set_hook(nullptr);
}

absl::Status Ddp::MakeBuckets(const DdpOptions& options) {
  const auto& all = parameters_->all();
  size_t bytes = 0;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const size_t limit = buckets_.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    if (buckets_.empty() || bytes >= limit) {
      buckets_.emplace_back();
      bytes = 0;
    }
    buckets_.back().parameters.push_back(it->get());
    bytes += Rounded((*it)->variable.value().num_bytes());
  }
  const size_t element = SizeOf(parameters_->dtype());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    size_t size = 0;
    for (Parameter* parameter : bucket.parameters) size += Rounded(parameter->variable.value().num_bytes());
    if (group_->size() == 1) {  // nobody to share it with
      bucket.memory = Buffer::Allocate(size, parameters_->device());
    } else {
      ASSIGN_OR_RETURN(bucket.memory, group_->Allocate(size));
    }
    bucket.view = ArrayView(bucket.memory->data(), parameters_->dtype(), Shape{static_cast<int64_t>(size / element)});
    kernels::Fill(bucket.view, 0, *stream_);  // the gaps between gradients are summed too
    size_t offset = 0;
    for (Parameter* parameter : bucket.parameters) {
      LeafNode& leaf = parameter->variable.leaf();
      leaf.PlaceGradient(Tensor::InBuffer(bucket.memory, offset, parameter->shape, parameters_->dtype()));
      leaf.set_hook([this, b, parameter](Context&) {
        if (last_pass_) OnGradient(b, parameter);
      });
      offset += Rounded(parameter->variable.value().num_bytes());
    }
  }
  return absl::OkStatus();
}

void Ddp::BeginStep(int num_passes) {
  num_passes_ = num_passes;
  next_bucket_ = 0;
  parameters_->ClearGradients();
  for (Bucket& bucket : buckets_) {
    bucket.missing = static_cast<int>(bucket.parameters.size());
    bucket.work.clear();
  }
}

void Ddp::OnGradient(size_t bucket, Parameter* parameter) {
  LeafNode& leaf = parameter->variable.leaf();
  if (!leaf.has_gradient()) {  // no path from this replica's loss: it contributes zeros, and still takes part
    leaf.AcceptStorage();
    kernels::Fill(leaf.gradient().view(), 0, *stream_);
  }
  TANDEM_CHECK_GT(buckets_[bucket].missing, 0) << parameter->name << " had two gradients in one pass";
  --buckets_[bucket].missing;
  LaunchReady();
}

void Ddp::AcceptGradients() {
  TANDEM_CHECK_EQ(group_->size(), 1);
  for (Bucket& bucket : buckets_) {
    for (Parameter* parameter : bucket.parameters) parameter->variable.leaf().AcceptStorage();
    bucket.missing = 0;
  }
  next_bucket_ = buckets_.size();
}

void Ddp::LaunchReady() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) {
    Bucket& bucket = buckets_[next_bucket_];
    if (group_->size() > 1) {  // the gradients of one replica are the sum
      bucket.work.push_back(group_->AllReduce(bucket.view, {.stream = stream_, .tag = StableHash("ddp") + next_bucket_}));
    }
    ++next_bucket_;
  }
}

void Ddp::Finish(Context& context) {
  if (context.failed()) return;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (buckets_[b].missing == 0) continue;
    for (Parameter* parameter : buckets_[b].parameters) {
      if (!parameter->variable.leaf().has_gradient()) OnGradient(b, parameter);
    }
  }
  TANDEM_CHECK_EQ(next_bucket_, buckets_.size());
  for (Bucket& bucket : buckets_) {
    for (comm::Work& work : bucket.work) context.Fail(group_->Await(work, context.deadline()));
  }
}

absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what, absl::Time deadline) {
  uint64_t low = value, high = value;
  const ArrayView low_view = DenseView(&low, Shape{1}), high_view = DenseView(&high, Shape{1});
  RETURN_IF_ERROR(group.Await(group.AllReduce(low_view, {.op = comm::ReduceOp::MIN}), deadline));
  RETURN_IF_ERROR(group.Await(group.AllReduce(high_view, {.op = comm::ReduceOp::MAX}), deadline));
  if (low == high) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("replicas differ in their ", what, ": replica ", group.rank(), " has ",
                                          absl::Hex(value, absl::kZeroPad16), ", others ",
                                          absl::Hex(value == low ? high : low, absl::kZeroPad16)));
}

}  // namespace tandem::parallel
