// The folders that a parameter server writes checkpoints to and reads them from. A message names a
// folder, but its sender may not be a trainer with a checkpoint. So the server trusts only the
// folders on its own command line.
// Thread rule: Check functions from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::ps {

// Paths; relative paths start at the working directory.
struct FolderLimits {
  std::vector<std::string> save_below, load_below;
};

class AllowedFolders {
 public:
  AllowedFolders() = default;  // everything is allowed
  explicit AllowedFolders(const FolderLimits& limits);

  // InvalidArgument unless `folder` is an absolute path inside an allowed folder. Links are not
  // followed: somebody who can make a link inside an allowed folder could write to the target
  // anyway.
  absl::Status CheckSave(const std::string& folder) const;
  absl::Status CheckLoad(const std::string& folder) const;

 private:
  bool limited_ = false;
  std::vector<std::string> save_below_, load_below_;  // absolute, without "." and ".."
};

}  // namespace tandem::ps
