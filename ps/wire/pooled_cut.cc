#include "ps/wire/pooled_cut.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "ps/wire/bag_rows.h"

namespace tandem::ps {

absl::StatusOr<std::vector<PooledMessage>> CutBags(const Bags& bags, const Router& router,
                                                   size_t dim, size_t max_bytes) {
  RETURN_IF_ERROR(CheckBags(bags));
  std::vector<std::vector<PooledMessage>> by_server(static_cast<size_t>(router.num_owners()));
  std::vector<size_t> bytes(by_server.size(), max_bytes);  // bytes in the server's last message
  for (size_t bag = 0; bag < bags.size(); ++bag) {
    for (uint64_t i = bags.offsets[bag]; i < bags.offsets[bag + 1]; ++i) {
      const uint64_t id = bags.ids[i];
      const auto server = static_cast<size_t>(router.OwnerOf(bags.table, id));
      const bool full =
          bytes[server] >= max_bytes ||
          (by_server[server].back().ids.size() + 1) * dim * sizeof(float) > kMaxPooledRowBytes;
      if (full) {
        by_server[server].emplace_back().server = static_cast<int>(server);
        bytes[server] = 0;
      }
      PooledMessage& message = by_server[server].back();
      if (message.bags.empty() || message.bags.back() != bag) {
        message.bags.push_back(static_cast<uint32_t>(bag));
        message.counts.push_back(0);
        bytes[server] += dim * sizeof(float) + sizeof(uint32_t);
      }
      ++message.counts.back();
      message.ids.push_back(id);
      bytes[server] += sizeof id;
      if (bags.weights == nullptr) continue;
      message.weights.push_back(bags.weights[i]);
      bytes[server] += sizeof(float);
    }
  }
  std::vector<PooledMessage> messages;
  for (auto& of_server : by_server) {
    for (PooledMessage& message : of_server) messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace tandem::ps
