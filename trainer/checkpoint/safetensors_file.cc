#include "trainer/checkpoint/safetensors_file.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::checkpoint {

namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are little-endian and written as memory is");
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

template <class... Text>
absl::Status Wrong(const std::string& path, const Text&... text) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", text...));
}

absl::Status WriteError(const std::string& path) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

bool WriteAt(int fd, uint64_t place, const void* from, size_t size) {
  const char* next = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t written = pwrite(fd, next, size, static_cast<off_t>(place));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    place += static_cast<uint64_t>(written);
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool ReadAt(int fd, uint64_t place, void* to, size_t size) {
  char* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = pread(fd, next, size, static_cast<off_t>(place));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    place += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

absl::Status SafetensorsFile::Create(const std::string& path, const SafetensorsHeader& header) {
  const std::string json = PrintHeader(header);
  const uint64_t json_bytes = json.size(),
                 data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return WriteError(path);
  const bool made =
      WriteAt(fd, 0, &json_bytes, sizeof json_bytes) &&
      WriteAt(fd, sizeof json_bytes, json.data(), json.size()) &&
      ftruncate(fd, static_cast<off_t>(sizeof json_bytes + json_bytes + data_bytes)) == 0;
  const absl::Status status = made ? absl::OkStatus() : WriteError(path);
  if (close(fd) != 0 && status.ok()) return WriteError(path);
  return status;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path,
                                                                       Access access) {
  const int fd = open(path.c_str(), (access == Access::READ ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  if (fd < 0) return Wrong(path, "cannot be ", access == Access::READ ? "read" : "written");
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, fd));
  RETURN_IF_ERROR(file->ReadHeader());
  return file;
}

SafetensorsFile::~SafetensorsFile() { close(fd_); }

absl::Status SafetensorsFile::ReadHeader() {
  struct stat about;
  if (fstat(fd_, &about) != 0 || !S_ISREG(about.st_mode)) return Wrong(path_, "cannot be read");
  const auto file_bytes = static_cast<uint64_t>(about.st_size);
  uint64_t json_bytes = 0;
  if (file_bytes < sizeof json_bytes || !ReadAt(fd_, 0, &json_bytes, sizeof json_bytes))
    return Wrong(path_, "ends within the length of its header");
  if (json_bytes > kMaxHeaderBytes || json_bytes > file_bytes - sizeof json_bytes)
    return Wrong(path_, "claims a header of ", json_bytes, " bytes in a file of ", file_bytes);
  std::string json(json_bytes, '\0');
  if (!ReadAt(fd_, sizeof json_bytes, json.data(), json.size()))
    return Wrong(path_, "cannot be read");
  data_begin_ = sizeof json_bytes + json_bytes;
  auto header = ParseHeader(json, file_bytes - data_begin_);
  if (!header.ok()) return Wrong(path_, header.status().message());
  header_ = *std::move(header);
  return absl::OkStatus();
}

const TensorEntry* SafetensorsFile::Find(const std::string& name) const {
  const auto found = std::find_if(header_.tensors.begin(), header_.tensors.end(),
                                  [&](const TensorEntry& entry) { return entry.name == name; });
  return found == header_.tensors.end() ? nullptr : &*found;
}

absl::Status SafetensorsFile::Read(const TensorEntry& entry, int64_t begin, int64_t count,
                                   void* to) const {
  const size_t element = SizeOf(entry.dtype);
  const uint64_t place = data_begin_ + entry.begin + static_cast<uint64_t>(begin) * element;
  if (ReadAt(fd_, place, to, static_cast<size_t>(count) * element)) return absl::OkStatus();
  return Wrong(path_, "cannot be read");
}

absl::Status SafetensorsFile::Write(const TensorEntry& entry, int64_t begin, int64_t count,
                                    const void* from) const {
  const size_t element = SizeOf(entry.dtype);
  const uint64_t place = data_begin_ + entry.begin + static_cast<uint64_t>(begin) * element;
  if (WriteAt(fd_, place, from, static_cast<size_t>(count) * element)) return absl::OkStatus();
  return WriteError(path_);
}

absl::Status SafetensorsFile::Sync() const {
  return fsync(fd_) == 0 ? absl::OkStatus() : WriteError(path_);
}

}  // namespace tandem::checkpoint
