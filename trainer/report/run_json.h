// The JSON of a run's files: the lines of metrics.jsonl and evaluations.jsonl, and summary.json.
// Older programs wrote some of the files, and users edit them. So text that is not as expected is
// no error, but holds nothing. Thread rule: pure functions, except for those that read a file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "trainer/report/run_output.h"

namespace tandem::report {

// Without line ends.
std::string StepJson(const StepRecord& record);
std::string EvaluationJson(const EvaluationRecord& record);
std::string SummaryJson(const RunSummary& summary);

struct RecordPlace {
  int64_t step = 0;
  std::optional<int64_t> epoch;
};
// The place of a record in its run. Returns nothing for a line that is no record.
std::optional<RecordPlace> PlaceOfRecord(const std::string& line);

// The "status" in the summary.json of `folder`. Returns nothing if no summary can be read.
std::optional<std::string> StatusOfRun(const std::string& folder);
// The "steps" and the "metrics" in the summary.json of `folder`, as far as there are any.
int64_t StepsOfRun(const std::string& folder);
std::map<std::string, double> MetricsOfRun(const std::string& folder);

}  // namespace tandem::report
