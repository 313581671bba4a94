#include "trainer/loop/job_data.h"

#include "kernels/base/status_macros.h"
#include "trainer/loop/sequence_data.h"

namespace tandem::loop {

absl::StatusOr<std::unique_ptr<JobData>> ReadJobData(const Job& job) {
  return SequenceData::Read(job);
}

}  // namespace tandem::loop
