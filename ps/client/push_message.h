// One message of a push: gathers ids and gradients, rounds gradients to the wire format, and adds
// the checksum.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "proto/embedding.pb.h"
#include "ps/client/message_plan.h"
#include "ps/client/resending_stream.h"
#include "ps/client/row_client.h"
#include "rpc/payload.h"

namespace tandem::ps {

// Rounding errors of the gradients of dense tables. The next push of a row adds the row's error, so
// that rounding loses nothing over steps. A skipped step leaves the errors unchanged.
class Residuals {
 public:
  // Returns the row's error so far. The caller adds it and replaces it with the new error.
  float* Of(uint32_t table, uint64_t id, uint32_t dim) {
    Row& row = rows_[{table, id}];
    row.kept.resize(dim);
    if (row.next.empty()) {
      row.next = row.kept;
      open_.push_back({table, id});
    }
    return row.next.data();
  }
  void EndStep(bool skipped) {
    for (const Key& key : open_) {
      Row& row = rows_[key];
      if (!skipped) row.kept.swap(row.next);
      row.next.clear();
    }
    open_.clear();
  }

 private:
  using Key = std::pair<uint32_t, uint64_t>;  // table, id
  struct Row {
    std::vector<float> kept, next;  // next: of the open step; empty if nothing was pushed
  };
  absl::flat_hash_map<Key, Row> rows_;
  std::vector<Key> open_;
};

// Encodes a message for `stream`. `request` has the header, the sequences, the step and the slice.
rpc::Payload EncodePush(const MessagePlan& plan, const CutMessage& message,
                        const std::vector<PushSegment>& segments, PushRequest request,
                        Residuals& residuals, ResendingStream& stream);

}  // namespace tandem::ps
