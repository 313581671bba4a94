// Who writes into an --out folder: one run at a time. The lock is the kernel's (flock), so that the end of the last process that has it
// is its end, however that process ends. A file in the folder says who has it, and goes with the lock.
// Thread rule: MarkEnding from any thread; the rest from the main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::cli {

class FolderLock {
 public:
  // Makes the folder if it is missing. `owner` is the role that others are told of, "launch" or "trainer-0". InvalidArgument names the
  // role, host and pid of a run that has the folder; one that is just ending is waited for, 10 s.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder, const std::string& owner);
  // The lock that the process which started this one has and gave on as file descriptor `fd`.
  static absl::StatusOr<std::unique_ptr<FolderLock>> Adopt(const std::string& folder, int fd);
  // Ends a lock that was taken, and removes folders that were made for it if nothing came into them.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Whoever wants the folder next waits from now on.
  void MarkEnding();
  // For a child: it has the lock as long as it lives.
  int fd() const { return fd_; }

 private:
  FolderLock(int fd, std::string folder) : fd_(fd), folder_(std::move(folder)) {}

  const int fd_;
  const std::string folder_;
  std::string owner_;              // empty: adopted, somebody else's to end
  std::vector<std::string> made_;  // folders, the innermost first
};

}  // namespace tandem::cli
