// Files that are trusted only after their size and checksum were compared with what the writer recorded: the bottom of
// checkpoints. A writer counts and checksums what it is given and has it on disk when Finish returns.
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
  // Replaces a file that exists.
  explicit FileWriter(const std::string& path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  // After a failure it does nothing: Finish tells.
  void Append(const void* data, size_t size);
  // Ok when every byte is on disk; ResourceExhausted, naming the file, otherwise (not Unavailable: a call that failed so must
  // not be sent again and again). Once.
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

// Whether it names an entry of a folder and leads nowhere else, nor to a hidden one.
bool IsPlainFileName(std::string_view name);
// FailedPrecondition, naming the file and both values, unless it is as it was written.
absl::Status CheckFile(const std::string& path, const FileDigest& expected);
// Makes new and renamed entries of a folder survive a crash of the machine.
absl::Status SyncFolder(const std::string& folder);

}  // namespace tandem
