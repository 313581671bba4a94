// The records in a run's folder: metrics.jsonl, evaluations.jsonl and summary.json, as numbers.
// Other versions wrote some of the files, and users edit them. So an absent or unexpected field
// holds nothing, and a line that is no record is counted and left out.
// Thread rule: free functions.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::report {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A line of metrics.jsonl. An absent number is kUnknown.
struct RunStep {
  double step = kUnknown, epoch = kUnknown, loss = kUnknown, learning_rate = kUnknown;
  double samples_per_second = kUnknown, tokens_per_second = kUnknown;
  double compute_ms = kUnknown, collective_ms = kUnknown, pull_ms = kUnknown, push_ms = kUnknown;
  double staleness = kUnknown;
  bool skipped = false;
};

// A line of evaluations.jsonl.
struct RunEvaluation {
  double step = kUnknown, epoch = kUnknown, train_loss = kUnknown;
  std::map<std::string, double> metrics;  // "valid/hr@10"
};

struct RunFiles {
  std::string folder;
  std::vector<RunStep> steps;              // ascending
  std::vector<RunEvaluation> evaluations;  // ascending
  size_t num_unread_lines = 0;             // of both files

  // The rest is from summary.json.
  bool has_summary = false;
  // All members in their order, objects as "layout.dp". Texts without their quotation marks.
  std::vector<std::pair<std::string, std::string>> figures;
  std::map<std::string, double> numbers;  // the figures that are numbers, "metrics.test/hr@10"
  std::map<std::string, double> metrics;  // of the best evaluation: "test/hr@10"
  // Floors and ceilings of metrics ("references" of the summary), by name in order of the file:
  // {"popularity", {{"hr@10", 0.07}}}. A metric's name may lack its split.
  std::vector<std::pair<std::string, std::map<std::string, double>>> references;

  // The text of a figure; empty: absent.
  std::string Figure(const std::string& name) const;
  // The number of a figure; kUnknown: absent.
  double Number(const std::string& name) const;
};

// InvalidArgument names the folder if it holds no record of a run.
absl::StatusOr<RunFiles> ReadRun(const std::string& folder);

}  // namespace tandem::report
