#include "trainer/tasks/evaluation_blocks.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::tasks {

absl::StatusOr<bool> ForEachBlock(
    int64_t num_examples, int64_t block_size, const EvaluationRanks& ranks,
    const EvaluationArgs& args,
    absl::FunctionRef<absl::Status(absl::Span<const data::BatchShare>)> evaluate) {
  const int replica = ranks.replicas->rank(), num_replicas = ranks.replicas->size();
  const data::BatchShare share = data::ShareOf(num_examples, replica, num_replicas, 0, 1);
  const int64_t largest_share = (num_examples + num_replicas - 1) / num_replicas;
  const int64_t at_once = ranks.num_stages() == 1 ? 1 : 2 * ranks.num_stages();
  for (int64_t done = 0; done < largest_share;) {
    if (args.stop_agreed) {
      ASSIGN_OR_RETURN(const bool stop, args.stop_agreed());
      if (stop) return false;
    }
    std::vector<data::BatchShare> blocks;
    for (int64_t b = 0; b < at_once && done < largest_share; ++b, done += block_size) {
      const int64_t begin = std::min(share.begin + done, share.end);
      blocks.push_back({begin, std::min(share.end, begin + block_size)});
    }
    RETURN_IF_ERROR(evaluate(blocks));
  }
  return true;
}

absl::Status SumShares(const EvaluationRanks& ranks, const EvaluationArgs& args, const char* tag,
                       std::vector<double>* figures) {
  RETURN_IF_ERROR(args.stream->status());  // do not sum what a failed device left
  const ArrayView view = DenseView(figures->data(), Shape{static_cast<int64_t>(figures->size())});
  for (comm::ProcessGroup* const group : {ranks.replicas, ranks.stages}) {
    if (group == nullptr) continue;
    RETURN_IF_ERROR(
        group->Await(group->AllReduce(view, {.stream = args.stream, .tag = StableHash(tag)}),
                     absl::Now() + args.timeout));
  }
  return absl::OkStatus();
}

}  // namespace tandem::tasks
