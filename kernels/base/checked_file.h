// Files that checkpoints are made of. A reader trusts a file only after its size and checksum match
// what the writer recorded. FileWriter counts and checksums its bytes. All bytes are on disk when
// Finish returns.
// Thread rule: one thread per object; the functions from any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

struct FileDigest {
  uint64_t num_bytes = 0;
  uint32_t crc32c = 0;
};

class FileWriter {
 public:
  // Replaces an existing file.
  explicit FileWriter(const std::string& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // Does nothing after a failure; Finish returns the error.
  void Append(const void* data, size_t size);
  // Ok when every byte is on disk; otherwise ResourceExhausted, which names the file. Not
  // Unavailable, because callers retry Unavailable and this write would only fail again. Call once.
  absl::StatusOr<FileDigest> Finish();

 private:
  void Fail();

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  FileDigest digest_;
  absl::Status status_;
};

// True if `name` is an entry of a folder: no path to elsewhere, and not hidden.
bool IsPlainFileName(std::string_view name);
// Reads a whole file. FailedPrecondition names a file that cannot be read.
absl::StatusOr<FileDigest> DigestOf(const std::string& path);
// FailedPrecondition, with the file and both values, if size or checksum differ from `expected`.
absl::Status CheckFile(const std::string& path, const FileDigest& expected);
// Makes new and renamed entries of a folder survive a crash of the machine.
absl::Status SyncFolder(const std::string& folder);

}  // namespace tandem
