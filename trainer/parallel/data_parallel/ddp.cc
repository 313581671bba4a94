#include "trainer/parallel/data_parallel/ddp.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

absl::StatusOr<std::unique_ptr<Ddp>> Ddp::Create(ParameterSet* parameters,
                                                 comm::ProcessGroup* group, Stream* stream,
                                                 const FlatLayoutOptions& options) {
  return Create(parameters, parameters->pointers(), group, /*holders=*/nullptr, stream, options);
}

absl::StatusOr<std::unique_ptr<Ddp>> Ddp::Create(ParameterSet* parameters,
                                                 const std::vector<Parameter*>& members,
                                                 comm::ProcessGroup* group,
                                                 const HolderGroups* holders, Stream* stream,
                                                 const FlatLayoutOptions& options) {
  std::unique_ptr<Ddp> ddp(new Ddp(group, holders, stream));
  GradientBucketOptions gradients;
  if (group->size() > 1)
    gradients.allocate = [group](size_t bytes) { return group->Allocate(bytes); };
  RETURN_IF_ERROR(ddp->PlaceGradients(*parameters, LayOut(members, options), std::move(gradients)));
  return ddp;
}

comm::Work Ddp::Sum(size_t bucket) {
  return group().AllReduce(SumOf(bucket), {.stream = &stream(), .tag = StableHash("ddp") + bucket});
}

absl::Status VerifyEqual(comm::ProcessGroup& group, uint64_t value, const char* what,
                         absl::Time deadline) {
  uint64_t low = value, high = value;
  const ArrayView low_view = DenseView(&low, Shape{1}), high_view = DenseView(&high, Shape{1});
  RETURN_IF_ERROR(group.Await(group.AllReduce(low_view, {.op = comm::ReduceOp::MIN}), deadline));
  RETURN_IF_ERROR(group.Await(group.AllReduce(high_view, {.op = comm::ReduceOp::MAX}), deadline));
  if (low == high) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("replicas differ in their ", what, ": replica ",
                                          group.rank(), " has ", absl::Hex(value, absl::kZeroPad16),
                                          ", others ",
                                          absl::Hex(value == low ? high : low, absl::kZeroPad16)));
}

}  // namespace tandem::parallel
