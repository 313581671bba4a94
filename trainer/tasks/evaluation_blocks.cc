#include "trainer/tasks/evaluation_blocks.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::tasks {

absl::StatusOr<bool> ForEachBlock(int64_t num_examples, int64_t block_size,
                                  const comm::ProcessGroup& group, const EvaluationArgs& args,
                                  absl::FunctionRef<void(const data::BatchShare&)> evaluate) {
  const data::BatchShare share = data::ShareOf(num_examples, group.rank(), group.size(), 0, 1);
  const int64_t largest_share = (num_examples + group.size() - 1) / group.size();
  for (int64_t done = 0; done < largest_share; done += block_size) {
    if (args.stop_agreed) {
      ASSIGN_OR_RETURN(const bool stop, args.stop_agreed());
      if (stop) return false;
    }
    const int64_t begin = std::min(share.begin + done, share.end);
    evaluate({begin, std::min(share.end, begin + block_size)});
  }
  return true;
}

absl::Status SumShares(comm::ProcessGroup& group, const EvaluationArgs& args, const char* tag,
                       std::vector<double>* figures) {
  RETURN_IF_ERROR(args.stream->status());  // do not sum what a failed device left
  const ArrayView view = DenseView(figures->data(), Shape{static_cast<int64_t>(figures->size())});
  return group.Await(group.AllReduce(view, {.stream = args.stream, .tag = StableHash(tag)}),
                     absl::Now() + args.timeout);
}

}  // namespace tandem::tasks
