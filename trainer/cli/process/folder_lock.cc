#include "trainer/cli/process/folder_lock.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/cli/process/host_name.h"

namespace tandem::cli {

namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kWaitForEnding = absl::Seconds(10);
// The time in which a run that was told to stop marks itself as ending.
constexpr absl::Duration kNotice = absl::Milliseconds(300);
constexpr absl::Duration kPoll = absl::Milliseconds(50);
constexpr char kEnding[] = "ending";

std::string PathOf(const std::string& folder) { return folder + "/.lock"; }

// One line: role, host, pid and, near the end of the run, "ending".
struct Owner {
  std::string role, host, state;
  int pid = 0;

  bool IsEnding() const {
    const bool gone = host == HostName() && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
    // An empty role: just beginning, and the line is not written yet.
    return state == kEnding || gone || role.empty();
  }
  std::string Text() const {
    return role.empty() ? "another process" : absl::StrCat(role, " on ", host, ", pid ", pid);
  }
};

Owner OwnerOf(const std::string& folder) {
  Owner owner;
  std::ifstream file(PathOf(folder));
  file >> owner.role >> owner.host >> owner.pid >> owner.state;
  return owner;
}

bool Write(int fd, const std::string& line) {
  return ftruncate(fd, 0) == 0 &&
         pwrite(fd, line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
}

absl::Status Refused(const std::string& folder, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--out ", folder, ": ", why));
}

// Makes the folder. Returns the folders that were missing, the innermost first.
absl::StatusOr<std::vector<std::string>> MakeFolder(const std::string& folder) {
  std::vector<std::string> missing;
  std::error_code error;
  fs::path path = fs::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "out/run/"
  for (; !error && !fs::exists(path, error) && !error; path = path.parent_path())
    missing.push_back(path.string());
  if (!error) fs::create_directories(folder, error);
  if (error) return Refused(folder, error.message());
  return missing;
}

bool IsFileAt(int fd, const std::string& path) {
  struct stat ours {
  }, named{};
  return fstat(fd, &ours) == 0 && stat(path.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
         ours.st_dev == named.st_dev;
}

// Returns an open lock file that is locked and still in its place; -1 if another run holds the
// lock.
absl::StatusOr<int> TryLock(const std::string& folder) {
  while (true) {
    const int fd = open(PathOf(folder).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return Refused(folder, absl::StrCat("cannot be written: ", std::strerror(errno)));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      close(fd);
      if (error == EWOULDBLOCK) return -1;
      return Refused(folder, absl::StrCat("cannot be locked: ", std::strerror(error)));
    }
    if (IsFileAt(fd, PathOf(folder))) return fd;
    close(fd);  // its last owner removed it in between
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& folder,
                                                             const std::string& owner) {
  ASSIGN_OR_RETURN(std::vector<std::string> made, MakeFolder(folder));
  const absl::Time began = absl::Now();
  ASSIGN_OR_RETURN(int fd, TryLock(folder));
  while (fd < 0) {
    const Owner holder = OwnerOf(folder);
    if (absl::Now() - began > (holder.IsEnding() ? kWaitForEnding : kNotice)) {
      return Refused(folder, absl::StrCat("a run has it: ", holder.Text(),
                                          "; wait for its end, or give another --out"));
    }
    absl::SleepFor(kPoll);
    ASSIGN_OR_RETURN(fd, TryLock(folder));
  }
  std::unique_ptr<FolderLock> lock(new FolderLock(fd, folder));
  lock->made_ = std::move(made);
  lock->owner_ = absl::StrCat(owner, " ", HostName(), " ", getpid());
  if (!Write(fd, lock->owner_ + "\n"))
    return absl::ResourceExhaustedError(absl::StrCat(PathOf(folder), ": ", std::strerror(errno)));
  return lock;
}

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Adopt(const std::string& folder, int fd) {
  if (!IsFileAt(fd, PathOf(folder)))
    return Refused(folder, "its lock was not given on by the process that has it");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return std::unique_ptr<FolderLock>(new FolderLock(fd, folder));
}

FolderLock::~FolderLock() {
  if (!owner_.empty()) {
    std::error_code ignored;
    fs::remove(PathOf(folder_), ignored);
    for (const std::string& path : made_) {
      if (rmdir(path.c_str()) != 0) break;
    }
  }
  close(fd_);
}

void FolderLock::MarkEnding() {
  if (!owner_.empty()) Write(fd_, absl::StrCat(owner_, " ", kEnding, "\n"));
}

}  // namespace tandem::cli
