#include "ps/message_cut.h"

#include <algorithm>

namespace tandem::ps {
namespace {

std::vector<CutMessage> CutForServer(int server, const std::vector<std::vector<OwnedIds>>& split,
                                     const std::vector<uint32_t>& dims, size_t max_bytes) {
  std::vector<CutMessage> messages;
  size_t room = 0;
  for (size_t segment = 0; segment < split.size(); ++segment) {
    const size_t count = split[segment][static_cast<size_t>(server)].ids.size();
    const size_t id_bytes = sizeof(uint64_t) + sizeof(float) * dims[segment];
    for (size_t begin = 0; begin < count;) {
      if (room < id_bytes) {
        messages.push_back({server, {}, 0, 0});
        room = std::max(max_bytes, id_bytes);
      }
      const size_t taken = std::min(count - begin, room / id_bytes);
      CutMessage& message = messages.back();
      message.ranges.push_back({segment, begin, begin + taken});
      message.num_ids += taken;
      message.num_values += taken * dims[segment];
      room -= taken * id_bytes;
      begin += taken;
    }
  }
  return messages;
}

}  // namespace

std::vector<CutMessage> CutMessages(const std::vector<std::vector<OwnedIds>>& split, const std::vector<uint32_t>& dims,
                                    size_t max_bytes) {
  std::vector<std::vector<CutMessage>> by_server;
  size_t longest = 0;
  for (size_t server = 0; !split.empty() && server < split[0].size(); ++server) {
    by_server.push_back(CutForServer(static_cast<int>(server), split, dims, max_bytes));
    longest = std::max(longest, by_server.back().size());
  }
  std::vector<CutMessage> turns;
  for (size_t turn = 0; turn < longest; ++turn) {
    for (auto& messages : by_server) {
      if (turn < messages.size()) turns.push_back(std::move(messages[turn]));
    }
  }
  return turns;
}

}  // namespace tandem::ps
