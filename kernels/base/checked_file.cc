#include "kernels/base/checked_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/crc32c.h"

namespace tandem {

namespace {
constexpr size_t kChunkBytes = size_t{1} << 20;

absl::Status WriteError(const std::string& path) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}
}  // namespace

FileWriter::FileWriter(const std::string& path)
    : path_(path), file_(std::fopen(path.c_str(), "wb")) {
  if (file_ == nullptr) Fail();
}

void FileWriter::Fail() {
  if (status_.ok()) status_ = WriteError(path_);
}

void FileWriter::Append(const void* data, size_t size) {
  if (!status_.ok() || size == 0) return;
  if (std::fwrite(data, 1, size, file_.get()) != size) return Fail();
  digest_.num_bytes += size;
  digest_.crc32c = Crc32c(digest_.crc32c, data, size);
}

absl::StatusOr<FileDigest> FileWriter::Finish() {
  if (status_.ok() && (std::fflush(file_.get()) != 0 || fsync(fileno(file_.get())) != 0)) Fail();
  if (file_ != nullptr && std::fclose(file_.release()) != 0) Fail();
  if (!status_.ok()) return status_;
  return digest_;
}

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

namespace {

// Reads at most `limit` bytes.
absl::StatusOr<FileDigest> DigestUpTo(const std::string& path, uint64_t limit) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  FileDigest found;
  std::vector<char> chunk(std::min<uint64_t>(kChunkBytes, limit));
  while (found.num_bytes < limit) {
    const uint64_t wanted = std::min<uint64_t>(chunk.size(), limit - found.num_bytes);
    const size_t size = std::fread(chunk.data(), 1, wanted, file.get());
    if (size == 0) break;
    found.num_bytes += size;
    found.crc32c = Crc32c(found.crc32c, chunk.data(), size);
  }
  if (std::ferror(file.get()) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  }
  return found;
}

}  // namespace

absl::StatusOr<FileDigest> DigestOf(const std::string& path) {
  return DigestUpTo(path, std::numeric_limits<uint64_t>::max());
}

absl::Status CheckFile(const std::string& path, const FileDigest& expected) {
  // One byte more than expected proves a mismatch. A file that keeps growing is not read to its
  // end.
  auto read = DigestUpTo(path, expected.num_bytes + 1);
  if (!read.ok()) return read.status();
  const FileDigest& found = *read;
  if (found.num_bytes != expected.num_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has ", found.num_bytes > expected.num_bytes ? "more than " : "",
                     std::min(found.num_bytes, expected.num_bytes), " bytes, ", expected.num_bytes,
                     " were written"));
  }
  if (found.crc32c != expected.crc32c) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is damaged: its checksum is %08x, %08x was written", path, found.crc32c,
                        expected.crc32c));
  }
  return absl::OkStatus();
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = fd >= 0 && fsync(fd) == 0;
  const absl::Status status = synced ? absl::OkStatus() : WriteError(folder);
  if (fd >= 0) close(fd);
  return status;
}

}  // namespace tandem
