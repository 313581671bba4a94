// A pipeline's schedule for people: beside `tandem schedule`, what a run prints of its own before
// the first step.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "trainer/parallel/pipeline/verifier.h"

namespace tandem {
class Job;  // proto/job.pb.h
}

namespace tandem::report {

// "13 slots, 12 of them work: bubble 7.7 %. Live microbatches by rank: 2 2".
std::string ScheduleFigures(const parallel::PipelineSchedule& schedule,
                            const parallel::ScheduleReport& report);
// The schedule of a resolved job, with its table if the table is short; "" without a pipeline, and
// for a schedule that the verifier refuses.
std::string PipelineText(const Job& job);

}  // namespace tandem::report
