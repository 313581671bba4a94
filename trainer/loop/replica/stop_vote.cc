#include "trainer/loop/replica/stop_vote.h"

#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::loop {

absl::StatusOr<bool> StopVote::Agree(absl::Time deadline) {
  double votes = Cast();
  const comm::CollectiveArgs args{.stream = stream_, .tag = StableHash("stop")};
  RETURN_IF_ERROR(group_->Await(group_->AllReduce(DenseView(&votes, Shape{1}), args), deadline));
  Count(votes);
  return stopping_;
}

}  // namespace tandem::loop
