#include "ps/wire/message_cut.h"

#include <algorithm>

#include "ps/wire/message_limits.h"

namespace tandem::ps {
namespace {

// Bytes of one id and its row in a message.
size_t MessageBytes(size_t row_bytes) { return sizeof(uint64_t) + row_bytes; }

// The size at which all messages of a server are about equal. A short last message would cost as
// much as a whole one. With two equal messages, one can be received while the other is made.
size_t EvenBytes(int server, const std::vector<std::vector<OwnedIds>>& split,
                 const std::vector<size_t>& row_bytes, size_t max_bytes) {
  size_t total = 0, widest = 0;
  for (size_t segment = 0; segment < split.size(); ++segment) {
    const size_t count = split[segment][static_cast<size_t>(server)].ids.size();
    total += count * MessageBytes(row_bytes[segment]);
    if (count > 0) widest = std::max(widest, MessageBytes(row_bytes[segment]));
  }
  if (total <= max_bytes) return max_bytes;
  const size_t num_messages = (total + max_bytes - 1) / max_bytes;
  return std::min(max_bytes, (total + num_messages - 1) / num_messages + widest);
}

std::vector<CutMessage> CutForServer(int server, const std::vector<std::vector<OwnedIds>>& split,
                                     const std::vector<size_t>& row_bytes, size_t max_bytes) {
  std::vector<CutMessage> messages;
  const size_t message_bytes = EvenBytes(server, split, row_bytes, max_bytes);
  size_t room = 0;
  for (size_t segment = 0; segment < split.size(); ++segment) {
    const size_t count = split[segment][static_cast<size_t>(server)].ids.size();
    const size_t id_bytes = MessageBytes(row_bytes[segment]);
    for (size_t begin = 0; begin < count;) {
      if (room < id_bytes || messages.back().ranges.size() == kMaxSegments) {
        messages.push_back({server, {}, 0, 0});
        room = std::max(message_bytes, id_bytes);
      }
      const size_t taken = std::min(count - begin, room / id_bytes);
      CutMessage& message = messages.back();
      message.ranges.push_back({segment, begin, begin + taken});
      message.num_ids += taken;
      message.row_bytes += taken * row_bytes[segment];
      room -= taken * id_bytes;
      begin += taken;
    }
  }
  return messages;
}

}  // namespace

std::vector<CutMessage> CutMessages(const std::vector<std::vector<OwnedIds>>& split,
                                    const std::vector<size_t>& row_bytes, size_t max_bytes) {
  std::vector<std::vector<CutMessage>> by_server;
  size_t longest = 0;
  for (size_t server = 0; !split.empty() && server < split[0].size(); ++server) {
    by_server.push_back(CutForServer(static_cast<int>(server), split, row_bytes, max_bytes));
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
