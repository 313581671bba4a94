// CRC-32C (Castagnoli, RFC 3720): the checksum of wire payloads and files.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

// The checksum of `size` bytes, continued from `crc` (0 for the first piece). Crc32c(Crc32c(0, a),
// b) is the checksum of a followed by b.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

}  // namespace tandem
