#include "trainer/report/pipeline_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/terminal.h"
#include "proto/job.pb.h"
#include "trainer/job/layout.h"
#include "trainer/parallel/pipeline/schedule_table.h"

namespace tandem::report {

std::string ScheduleFigures(const parallel::PipelineSchedule& schedule,
                            const parallel::ScheduleReport& report) {
  std::string live;
  for (const double peak : report.peak_live) absl::StrAppendFormat(&live, " %g", peak);
  const double idle = *std::max_element(report.idle.begin(), report.idle.end());
  return absl::StrFormat("%g slots, %g of them work: bubble %.1f %%. Live microbatches by rank:%s",
                         report.makespan * schedule.num_chunks,
                         (report.makespan - idle) * schedule.num_chunks, 100 * report.bubble(),
                         live);
}

std::string PipelineText(const Job& job) {
  const parallel::ScheduleOptions options = job::ScheduleOptionsOf(job);
  if (options.num_ranks == 1) return "";
  const parallel::PipelineSchedule schedule = parallel::MakeSchedule(options);
  const auto report = parallel::VerifySchedule(schedule);
  if (!report.ok()) return "";
  const std::string table =
      parallel::ScheduleTable(schedule, *report, parallel::StageCosts(), TerminalColumns());
  // A line for the slots and one for each rank.
  const bool is_short = std::count(table.begin(), table.end(), '\n') <= options.num_ranks + 1;
  return absl::StrCat("\n", NameOf(options.kind), ": ", schedule.num_stages(), " stages on ",
                      options.num_ranks, " ranks, ", options.num_microbatches, " microbatches\n",
                      is_short ? table.substr(0, table.find_last_not_of('\n') + 1) : "",
                      is_short ? "\n" : "", ScheduleFigures(schedule, *report));
}

}  // namespace tandem::report
