#include "trainer/comm/text.h"

#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

// Longer than the collective's own limit, whose error explains more.
absl::Time DeadlineOf(const CollectiveArgs& args) {
  return args.timeout > absl::ZeroDuration() ? absl::Now() + args.timeout + absl::Seconds(1)
                                             : absl::InfiniteFuture();
}

}  // namespace

absl::StatusOr<std::string> BroadcastText(ProcessGroup& group, absl::string_view mine, int root,
                                          const CollectiveArgs& args) {
  auto size = static_cast<int64_t>(mine.size());
  RETURN_IF_ERROR(
      group.Await(group.Broadcast(DenseView(&size, Shape{1}), root, args), DeadlineOf(args)));
  std::string text(group.rank() == root ? mine : absl::string_view());
  text.resize(static_cast<size_t>(size));
  auto* const bytes = reinterpret_cast<uint8_t*>(text.data());
  RETURN_IF_ERROR(
      group.Await(group.Broadcast(DenseView(bytes, Shape{size}), root, args), DeadlineOf(args)));
  return text;
}

absl::StatusOr<std::string> FirstText(ProcessGroup& group, absl::string_view mine,
                                      const CollectiveArgs& args) {
  int64_t first = mine.empty() ? group.size() : group.rank();
  CollectiveArgs smallest = args;
  smallest.op = ReduceOp::MIN;
  RETURN_IF_ERROR(
      group.Await(group.AllReduce(DenseView(&first, Shape{1}), smallest), DeadlineOf(args)));
  if (first == group.size()) return "";
  return BroadcastText(group, mine, static_cast<int>(first), args);
}

}  // namespace tandem::comm
