// How large one message of tandem.EmbeddingService may be: clients cut calls so, servers refuse more. Memory for a message is bounded by its
// bytes, whatever it counts. Thread rule: constants.
#pragma once

#include <cstddef>

namespace tandem::ps {

// Of the rows or gradients in one message, and of its ids as u64; a larger job is cut into several messages.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;
// Of a message with ids or rows, beside those: fields at the top level, each segment being one, and their bytes.
inline constexpr size_t kMaxFields = 2048;
inline constexpr size_t kMaxSmallBytes = size_t{128} << 10;
// Leaves room for a message's other fields.
inline constexpr size_t kMaxSegments = kMaxFields / 2;
// Of a server, over all CreateTables.
inline constexpr size_t kMaxTables = kMaxFields;
// Of a Load: files of all servers that saved.
inline constexpr size_t kMaxLoadFields = size_t{1} << 16;

}  // namespace tandem::ps
