// Draws a verified schedule for people: ranks below each other, time slots beside each other.
// Thread rule: pure function; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "trainer/parallel/pipeline/verifier.h"

namespace tandem::parallel {

// A slot is as long as a unit of the costs on one chunk. Slots that do not fit `columns` go on in
// blocks below. "." is an idle slot; a work that takes several slots is named in its first one.
// REQUIRES: the report is of VerifySchedule with `costs`, which are whole numbers.
std::string ScheduleTable(const PipelineSchedule& schedule, const ScheduleReport& report,
                          const StageCosts& costs, size_t columns);

}  // namespace tandem::parallel
