// Which folders a parameter server writes checkpoints to and reads them from. A message names a folder, and whoever sends it may be another
// member than a trainer with a checkpoint: only what the server's own command line names is believed.
// Thread rule: Check from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::ps {

// Paths, relative ones to the working directory.
struct FolderLimits {
  std::vector<std::string> save_below, load_below;
};

class AllowedFolders {
 public:
  AllowedFolders() = default;  // everything is allowed
  explicit AllowedFolders(const FolderLimits& limits);

  // InvalidArgument unless `folder` is an absolute path inside one that is allowed. Links are not followed: who made a link inside an
  // allowed folder could write there anyway.
  absl::Status CheckSave(const std::string& folder) const;
  absl::Status CheckLoad(const std::string& folder) const;

 private:
  bool limited_ = false;
  std::vector<std::string> save_below_, load_below_;  // absolute, without "." and ".."
};

}  // namespace tandem::ps
