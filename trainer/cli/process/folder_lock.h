// The lock of an --out folder: one run writes at a time. The lock is the kernel's (flock), so it
// ends with the last process that holds it, however that process ends. A file in the folder names
// the holder and disappears with the lock.
// Thread rule: MarkEnding from any thread; everything else from the main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::cli {

class FolderLock {
 public:
  // Takes the lock and makes the folder if missing. `owner` is the role that other runs are shown,
  // "launch" or "trainer-0". InvalidArgument names role, host and pid of a run that holds the
  // folder. Waits up to 10 s for a run that is ending.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder,
                                                          const std::string& owner);
  // Adopts the lock that the parent process holds and passed on as file descriptor `fd`.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Adopt(const std::string& folder, int fd);
  // Releases a lock that was taken. Removes folders that were made for it if they are still empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Makes later takers wait instead of failing.
  void MarkEnding();
  // For a child: the child holds the lock as long as it lives.
  int fd() const { return fd_; }

 private:
  FolderLock(int fd, std::string folder) : fd_(fd), folder_(std::move(folder)) {}

  const int fd_;
  const std::string folder_;
  std::string owner_;              // empty: adopted, and the parent's to release
  std::vector<std::string> made_;  // folders, the innermost first
};

}  // namespace tandem::cli
