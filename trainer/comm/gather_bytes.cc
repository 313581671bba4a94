#include "trainer/comm/gather_bytes.h"

#include <numeric>

#include "kernels/base/status_macros.h"

namespace tandem::comm {

absl::StatusOr<std::vector<std::string>> GatherBytes(ProcessGroup& group, absl::string_view mine,
                                                     uint64_t tag, absl::Time deadline) {
  const CollectiveArgs args{.tag = tag};
  const int64_t num_bytes = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(static_cast<size_t>(group.size())), send_counts(sizes.size(), 0);
  RETURN_IF_ERROR(group.Await(group.AllGather(DenseView(sizes.data(), Shape{group.size()}),
                                              DenseView(&num_bytes, Shape{1}), args),
                              deadline));
  send_counts[0] = num_bytes;
  // The sizes of the strings that arrive here.
  if (group.rank() != 0) sizes.assign(sizes.size(), 0);
  std::vector<uint8_t> received(
      static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0})));
  const ArrayView from = DenseView(reinterpret_cast<const uint8_t*>(mine.data()), Shape{num_bytes});
  const ArrayView to = DenseView(received.data(), Shape{static_cast<int64_t>(received.size())});
  RETURN_IF_ERROR(group.Await(group.AllToAllV(to, sizes, from, send_counts, args), deadline));
  std::vector<std::string> all;
  if (group.rank() != 0) return all;
  auto next = received.begin();
  for (const int64_t size : sizes) {
    all.emplace_back(next, next + size);
    next += size;
  }
  return all;
}

}  // namespace tandem::comm
