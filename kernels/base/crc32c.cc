#include "kernels/base/crc32c.h"

#include <array>
#include <cstring>

namespace tandem {

namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // bits reversed, as all of this is

constexpr uint32_t ShiftBit(uint32_t crc) { return (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0u); }

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = ShiftBit(crc);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t Portable(uint32_t crc, const unsigned char* p, size_t size) {
  for (size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kTable[(crc ^ p[i]) & 0xff];
  return crc;
}

#if defined(__x86_64__)
// What a state becomes behind `num_bytes` zeros, by each of its four bytes: the map is linear, so a state's is the sum of them.
using ZerosTable = std::array<std::array<uint32_t, 256>, 4>;

constexpr ZerosTable MakeZerosTable(size_t num_bytes) {
  std::array<uint32_t, 32> columns{};  // of single bits
  for (int bit = 0; bit < 32; ++bit) columns[bit] = uint32_t{1} << bit;
  std::array<uint32_t, 32> square{};  // by one bit of zeros, then 2, 4, ...
  for (int bit = 0; bit < 32; ++bit) square[bit] = ShiftBit(uint32_t{1} << bit);
  const auto apply = [](const std::array<uint32_t, 32>& map, uint32_t state) {
    uint32_t result = 0;
    for (int bit = 0; bit < 32; ++bit) result ^= (state >> bit & 1) != 0 ? map[bit] : 0u;
    return result;
  };
  for (size_t bits = num_bytes * 8; bits != 0; bits >>= 1) {
    if ((bits & 1) != 0) {
      for (uint32_t& column : columns) column = apply(square, column);
    }
    std::array<uint32_t, 32> next{};
    for (int bit = 0; bit < 32; ++bit) next[bit] = apply(square, square[bit]);
    square = next;
  }
  ZerosTable table{};
  for (int byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) table[byte][value] = apply(columns, value << (8 * byte));
  }
  return table;
}

// The instruction takes three cycles and can begin in each: three blocks side by side, whose states are joined.
constexpr size_t kBlockBytes = 1024;
constexpr ZerosTable kBehindBlock = MakeZerosTable(kBlockBytes);

uint64_t BehindBlock(uint64_t state) {
  return kBehindBlock[0][state & 0xff] ^ kBehindBlock[1][state >> 8 & 0xff] ^ kBehindBlock[2][state >> 16 & 0xff] ^
         kBehindBlock[3][state >> 24 & 0xff];
}

uint64_t LoadWord(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t Hardware(uint32_t crc, const unsigned char* p, size_t size) {
  uint64_t state = crc;
  for (; size >= 3 * kBlockBytes; p += 3 * kBlockBytes, size -= 3 * kBlockBytes) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kBlockBytes; i += 8) {
      state = __builtin_ia32_crc32di(state, LoadWord(p + i));
      second = __builtin_ia32_crc32di(second, LoadWord(p + kBlockBytes + i));
      third = __builtin_ia32_crc32di(third, LoadWord(p + 2 * kBlockBytes + i));
    }
    state = BehindBlock(BehindBlock(state) ^ second) ^ third;
  }
  for (; size >= 8; p += 8, size -= 8) state = __builtin_ia32_crc32di(state, LoadWord(p));
  crc = static_cast<uint32_t>(state);
  for (; size > 0; ++p, --size) crc = __builtin_ia32_crc32qi(crc, *p);
  return crc;
}
#endif

}  // namespace

uint32_t Crc32c(uint32_t crc, const void* data, size_t size) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~Hardware(~crc, p, size);
#endif
  return ~Portable(~crc, p, size);
}

}  // namespace tandem
