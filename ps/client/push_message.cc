#include "ps/client/push_message.h"

#include <cstring>
#include <utility>

#include "kernels/base/crc32c.h"
#include "kernels/base/random.h"
#include "kernels/memory/buffer.h"

namespace tandem::ps {
namespace {

using rpc::Payload;

// Separates the random bits of gradients from the random bits of weights.
constexpr uint64_t kRoundingSalt = 0x6772616469656e74;
// Bytes that one step of the checksum covers.
constexpr size_t kChecksumBytes = size_t{12} << 10;

// Copies the message's gradients into one buffer of the stream, rounded to the wire format. Extends
// `*crc` over the copied gradients. `draw` makes random bits differ between
// steps, and between trainers that push the same row.
std::shared_ptr<Buffer> GatherGradients(const MessagePlan& plan, const CutMessage& message,
                                        uint64_t draw, const std::vector<PushSegment>& segments,
                                        Residuals& residuals, ResendingStream& stream,
                                        uint32_t* crc) {
  auto gradients = stream.Allocate(message.row_bytes);
  char* next = static_cast<char*>(gradients->data());
  // `crc` covers bytes up to here; pieces are small enough to be still in the nearest cache.
  const char* summed = next;
  const auto sum_up = [&] {
    *crc = Crc32c(*crc, summed, static_cast<size_t>(next - summed));
    summed = next;
  };
  for (const IdRange& range : message.ranges) {
    const MessagePlan::Table& table = plan.tables[range.segment];
    const uint32_t dim = table.dim;
    const size_t row_bytes = plan.row_bytes[range.segment];
    const OwnedIds& owned = plan.OwnedOf(message, range);
    for (size_t i = range.begin; i < range.end; ++i, next += row_bytes) {
      const float* const gradient = segments[range.segment].gradients + PlaceOf(owned, i) * dim;
      if (plan.wire == WIRE_F32) {
        std::memcpy(next, gradient, row_bytes);
      } else if (table.dense) {
        EncodeWithResidual(plan.wire, gradient, dim, residuals.Of(table.number, owned.ids[i], dim),
                           next);
      } else {
        const RandomKey key{table.seed ^ kRoundingSalt, owned.ids[i]};
        EncodeGradient(plan.wire, gradient, dim, key, draw, next);
      }
      if (static_cast<size_t>(next - summed) >= kChecksumBytes) sum_up();
    }
  }
  sum_up();
  return gradients;
}

}  // namespace

Payload EncodePush(const MessagePlan& plan, const CutMessage& message,
                   const std::vector<PushSegment>& segments, PushRequest request,
                   Residuals& residuals, ResendingStream& stream) {
  request.set_gradients_format(plan.wire);
  const GatheredIds ids = GatherIds(plan, message);
  DescribeIds(plan, message, ids, &request);
  uint32_t crc = Crc32c(0, ids.buffer->data(), ids.num_bytes);
  const uint64_t draw = request.step() ^ uint64_t { request.slice() } << 32;
  const std::shared_ptr<Buffer> gradients =
      GatherGradients(plan, message, draw, segments, residuals, stream, &crc);
  request.set_payload_crc32c(crc);
  Payload payload(request.SerializeAsString());
  rpc::AppendBytesField(payload, 14, ids.buffer->data(), ids.num_bytes, ids.buffer);
  rpc::AppendBytesField(payload, 15, gradients->data(), gradients->num_bytes(), gradients);
  return payload;
}

}  // namespace tandem::ps
