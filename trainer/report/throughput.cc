#include "trainer/report/throughput.h"

#include <algorithm>

namespace tandem::report {

absl::Status Throughput::BeforeStep(const StepRecord& /*record*/, absl::Time /*deadline*/) {
  watch_.Lap();
  return absl::OkStatus();
}

absl::Status Throughput::AfterStep(StepRecord& record, absl::Time /*deadline*/) {
  const double seconds = watch_.Seconds();
  record.mfu = peak_flops_ > 0 ? record.flops / seconds / peak_flops_ : 0;
  record.samples_per_second = static_cast<double>(record.samples) / seconds;
  record.tokens_per_second = static_cast<double>(record.tokens) / seconds;
  samples_ += record.samples;
  tokens_ += record.tokens;
  seconds_ += seconds;
  return absl::OkStatus();
}

double Throughput::PerSecond(int64_t count) const {
  return static_cast<double>(count) / std::max(1e-9, seconds_);
}

}  // namespace tandem::report
