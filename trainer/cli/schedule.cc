// `tandem schedule`: verifies a pipeline schedule and prints it.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/terminal.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/parallel/pipeline/schedule_table.h"
#include "trainer/parallel/pipeline/verifier.h"
#include "trainer/report/pipeline_text.h"

namespace tandem::cli {

int Schedule(const ScheduleCommandOptions& options) {
  using parallel::ScheduleKind;
  const ScheduleKind kind = *parallel::ScheduleKindOf(options.schedule);
  const int chunks = options.virtual_stages;
  if (chunks > 1 && (kind != ScheduleKind::INTERLEAVED || options.pp == 1)) {
    return ReportError(absl::InvalidArgumentError(absl::StrCat(
        "--virtual-stages is ", chunks, "; allowed: 1, more for INTERLEAVED with --pp above 1")));
  }
  const parallel::StageCosts costs{static_cast<double>(options.forward),
                                   static_cast<double>(options.backward_input),
                                   static_cast<double>(options.backward_weight)};
  const parallel::PipelineSchedule schedule =
      parallel::MakeSchedule({kind, options.pp, chunks, options.microbatches});
  const auto verified = parallel::VerifySchedule(schedule, costs);
  if (!verified.ok()) return ReportError(verified.status());
  std::printf("%s, %d ranks, %d microbatches%s\n", options.schedule.c_str(), options.pp,
              options.microbatches,
              chunks == 1 ? "" : absl::StrCat(", ", chunks, " chunks a rank").c_str());
  std::printf("F forward, B and W the halves of the backward pass: for the input, for the weights");
  std::printf("%s\n\n", chunks == 1 ? "" : "; F3.1: microbatch 3, chunk 1");
  std::fputs(parallel::ScheduleTable(schedule, *verified, costs, TerminalColumns()).c_str(),
             stdout);
  std::printf("\n%s\n", report::ScheduleFigures(schedule, *verified).c_str());
  return 0;
}

}  // namespace tandem::cli
