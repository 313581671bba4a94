// Ways to read a file whole and to damage it.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace tandem {

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Flips a byte in place. A second flip restores the file.
inline void FlipByte(const std::string& path, size_t place) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(place));
  const char flipped = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(place));
  file.put(flipped);
}

}  // namespace tandem
