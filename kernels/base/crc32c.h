// CRC-32C (Castagnoli), as in RFC 3720: check values of wire payloads and files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem {

// The checksum of `size` bytes, continuing from `crc` (0 for the first piece): Crc32c(Crc32c(0, a), b) is that of ab.
uint32_t Crc32c(uint32_t crc, const void* data, size_t size);

}  // namespace tandem
