#include "trainer/sparse/group_exchange.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::sparse {

namespace {

// Lets the group's own error, which explains more, come first.
constexpr absl::Duration kMargin = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<GroupExchange>> GroupExchange::Create(comm::ProcessGroup& trainers,
                                                                     absl::Duration timeout) {
  ASSIGN_OR_RETURN(auto group,
                   trainers.Split(/*color=*/0, trainers.rank(), "merge", absl::Now() + timeout));
  return std::unique_ptr<GroupExchange>(new GroupExchange(std::move(group), timeout));
}

absl::StatusOr<ps::AllToAllBuffers> GroupExchange::Exchange(const char* outgoing,
                                                            const std::vector<size_t>& bytes) {
  const absl::Time deadline = absl::Now() + 2 * timeout_ + kMargin;  // two operations
  const comm::CollectiveArgs args{.tag = StableHash("merge"), .timeout = timeout_};
  const auto ranks = static_cast<int64_t>(bytes.size());
  const std::vector<int64_t> one_each(bytes.size(), 1), sent(bytes.begin(), bytes.end());
  std::vector<int64_t> received(bytes.size());
  RETURN_IF_ERROR(
      group_->Await(group_->AllToAllV(DenseView(received.data(), Shape{ranks}), one_each,
                                      DenseView(sent.data(), Shape{ranks}), one_each, args),
                    deadline));
  const auto total = [](const std::vector<int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  };
  ps::AllToAllBuffers incoming{Buffer::Allocate(static_cast<size_t>(total(received))),
                               {received.begin(), received.end()}};
  RETURN_IF_ERROR(group_->Await(
      group_->AllToAllV(
          DenseView(static_cast<uint8_t*>(incoming.memory->data()), Shape{total(received)}),
          received, DenseView(reinterpret_cast<const uint8_t*>(outgoing), Shape{total(sent)}), sent,
          args),
      deadline));
  return incoming;
}

}  // namespace tandem::sparse
