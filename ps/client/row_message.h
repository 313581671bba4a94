// One message of a call for whole rows of a dense table: assign or read.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "proto/embedding.pb.h"
#include "ps/client/message_plan.h"
#include "ps/client/table_admin.h"
#include "ps/wire/router.h"
#include "rpc/payload.h"

namespace tandem::ps {

// A message's share of a call: rows [begin, end) of its server's rows.
struct RowsMessage {
  const OwnedIds& owned;
  const size_t begin, end;

  size_t num_ids() const { return end - begin; }
  const uint64_t* ids() const { return owned.ids.data() + begin; }
  // Returns the place of the message's row `i` in the caller's array.
  size_t place(size_t i) const { return PlaceOf(owned, begin + i); }
};

rpc::Payload EncodeAssign(const RequestHeader& header, const RowsToAssign& rows,
                          const RowsMessage& part);
rpc::Payload EncodeRead(const RequestHeader& header, const RowsToRead& rows,
                        const RowsMessage& part);
// Writes the answer to a read to the caller's rows.
absl::Status TakeRead(const RowsToRead& rows, const RowsMessage& part, rpc::Payload answer);

}  // namespace tandem::ps
