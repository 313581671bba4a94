// A file of named tensors in the safetensors format (safetensors_header.h), opened for reading or
// writing ranges of elements. Several processes may write ranges of one file.
// Thread rule: one thread per object.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/safetensors_header.h"

namespace tandem::checkpoint {

class SafetensorsFile {
 public:
  // Makes a file with room for the header's tensors, all zeros. ResourceExhausted names the file.
  static absl::Status Create(const std::string& path, const SafetensorsHeader& header);
  // Trusts nothing in the file. FailedPrecondition names the file and what is wrong.
  enum class Access { READ, WRITE };
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path,
                                                               Access access);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const SafetensorsHeader& header() const { return header_; }
  // Returns null if there is no tensor of this name.
  const TensorEntry* Find(const std::string& name) const;

  // Reads `count` elements of `entry`, from element `begin` on. FailedPrecondition names the file.
  // REQUIRES: the entry is of this file and has these elements.
  absl::Status Read(const TensorEntry& entry, int64_t begin, int64_t count, void* to) const;
  // Writes elements. ResourceExhausted names the file.
  absl::Status Write(const TensorEntry& entry, int64_t begin, int64_t count,
                     const void* from) const;
  // Returns when all that was written is on disk.
  absl::Status Sync() const;

 private:
  SafetensorsFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  absl::Status ReadHeader();

  const std::string path_;
  const int fd_;
  uint64_t data_begin_ = 0;  // byte of the file
  SafetensorsHeader header_;
};

}  // namespace tandem::checkpoint
