#include "rpc/shared/memory.h"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tandem::rpc {

namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

constexpr char kName[] = "tandem";  // the segment's name in /proc

std::string Failed(const char* what, size_t num_bytes, int error) {
  return absl::StrCat("cannot ", what, " shared memory of ", num_bytes,
                      " bytes: ", std::strerror(error));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(size_t num_bytes, Pages pages) {
  TANDEM_CHECK_GT(num_bytes, 0u);
  std::unique_ptr<SharedMemory> memory(new SharedMemory);
  memory->fd_ = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory->fd_ < 0) return absl::ResourceExhaustedError(Failed("create", num_bytes, errno));
  if (ftruncate(memory->fd_, static_cast<off_t>(num_bytes)) != 0)
    return absl::ResourceExhaustedError(Failed("size", num_bytes, errno));
  int error = 0;
  do {
    error = pages == Pages::AT_ONCE ? posix_fallocate(memory->fd_, 0, static_cast<off_t>(num_bytes))
                                    : 0;
  } while (error == EINTR);
  if (error != 0) return absl::ResourceExhaustedError(Failed("reserve", num_bytes, error));
  if (fcntl(memory->fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::UnavailableError(Failed("seal", num_bytes, errno));
  }
  RETURN_IF_ERROR(memory->Map(memory->fd_, num_bytes));
  return memory;
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Adopt(int fd, size_t num_bytes) {
  FileDescriptor owned(fd);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0)
    return absl::UnavailableError(Failed("inspect", num_bytes, errno));
  const int seals = fcntl(fd, F_GET_SEALS);
  if (static_cast<size_t>(info.st_size) != num_bytes || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared memory of ", info.st_size, " bytes, not ", num_bytes,
                     " and sealed: its creator runs another program or layout"));
  }
  std::unique_ptr<SharedMemory> memory(new SharedMemory);
  RETURN_IF_ERROR(memory->Map(fd, num_bytes));
  return memory;
}

absl::Status SharedMemory::Map(int fd, size_t num_bytes) {
  void* data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return absl::ResourceExhaustedError(Failed("map", num_bytes, errno));
  data_ = static_cast<char*>(data);
  num_bytes_ = num_bytes;
  return absl::OkStatus();
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, num_bytes_);
  if (fd_ >= 0) close(fd_);
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, absl::Duration timeout) {
  if (timeout <= absl::ZeroDuration()) return;
  const timespec limit = absl::ToTimespec(timeout);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tandem::rpc
