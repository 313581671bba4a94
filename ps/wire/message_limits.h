// Limits on one message of tandem.EmbeddingService. Clients cut calls to these limits, and servers
// refuse larger messages. So the bytes of a message bound the memory that a server spends on the
// message.
// Thread rule: constants.
#pragma once

#include <cstddef>

namespace tandem::ps {

// Limit on the bytes of rows or gradients in one message, and on the bytes of its ids as u64. A
// larger call is cut into several messages.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;
// Limits on the rest of a message with ids or rows: the number of top-level fields and the bytes of
// these fields. Each segment is a field.
inline constexpr size_t kMaxFields = 2048;
inline constexpr size_t kMaxSmallBytes = size_t{128} << 10;
// Half of kMaxFields, which leaves room for the other fields of a message.
inline constexpr size_t kMaxSegments = kMaxFields / 2;
// Limit on the tables of one server, over all CreateTables calls.
inline constexpr size_t kMaxTables = kMaxFields;
// Limit on the fields of a Load, which lists the files of every server that saved.
inline constexpr size_t kMaxLoadFields = size_t{1} << 16;

}  // namespace tandem::ps
