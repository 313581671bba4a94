#include "trainer/tasks/job_data.h"

namespace tandem::tasks {

SavedFile FileOf(const std::string& path, const FileDigest& digest) {
  SavedFile file;
  file.set_name(path);
  file.set_bytes(digest.num_bytes);
  file.set_crc32c(digest.crc32c);
  return file;
}

}  // namespace tandem::tasks
