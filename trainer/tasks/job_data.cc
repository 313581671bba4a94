#include "trainer/tasks/job_data.h"

#include "kernels/base/status_macros.h"
#include "trainer/tasks/sequence_data.h"
#include "trainer/tasks/text_data.h"

namespace tandem::tasks {

absl::StatusOr<std::unique_ptr<JobData>> ReadJobData(const Job& job, DataUse use,
                                                     const std::string& item_ids) {
  if (job.model().has_gpt()) return TextData::Read(job);
  return SequenceData::Read(job, use, item_ids);
}

SavedFile FileOf(const std::string& path, const FileDigest& digest) {
  SavedFile file;
  file.set_name(path);
  file.set_bytes(digest.num_bytes);
  file.set_crc32c(digest.crc32c);
  return file;
}

}  // namespace tandem::tasks
