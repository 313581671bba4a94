// A file with the given bytes for one test, removed with the object.
#pragma once

#include <string>
#include <string_view>

#include "tests/support/temp_folder.h"

namespace tandem::data {

class TempFile {
 public:
  explicit TempFile(std::string_view content) : path_(folder_.Write("file", content)) {}
  const std::string& path() const { return path_; }

 private:
  support::TempFolder folder_;
  std::string path_;
};

}  // namespace tandem::data
