// A folder for one test, removed with the object; and ways to damage the files in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tandem {

class TempFolder {
 public:
  TempFolder() : path_(testing::TempDir() + "tandem_checkpoint_XXXXXX") { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// In place: a second flip mends it.
inline void FlipByte(const std::string& path, size_t place) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(place));
  const char flipped = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(place));
  file.put(flipped);
}

}  // namespace tandem
