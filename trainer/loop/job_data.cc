#include "trainer/loop/job_data.h"

#include "kernels/base/status_macros.h"
#include "trainer/loop/sequence_data.h"
#include "trainer/loop/text_data.h"

namespace tandem::loop {

absl::StatusOr<std::unique_ptr<JobData>> ReadJobData(const Job& job) {
  if (job.model().has_gpt()) return TextData::Read(job);
  return SequenceData::Read(job);
}

}  // namespace tandem::loop
