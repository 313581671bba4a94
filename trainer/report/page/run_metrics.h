// The figures of a run that people ask for first, and how they are written.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "trainer/report/page/run_files.h"
#include "trainer/report/page/seed_groups.h"

namespace tandem::report {

// At most `most` metrics that any of the runs has, without their split: "hr@10". Those that
// Tandem's own models report come first.
std::vector<std::string> KeyMetrics(const std::vector<const RunFiles*>& runs, size_t most);

// True for "loss", "valid/text_loss" and the like, whose best value is the lowest.
bool IsLoss(const std::string& metric);
bool IsLowBest(const std::string& metric);

// The figure of a run's best evaluation: of the test split if there is one, else of the validation
// split. Its name is empty if there is none.
std::pair<std::string, double> BestFigure(const RunFiles& run, const std::string& metric);

// The references that have `metric`, by name: {"popularity", 0.07}.
std::vector<std::pair<std::string, double>> ReferencesOf(const RunFiles& run,
                                                         const std::string& metric);

struct SpreadTexts {
  std::string mean, deviation, low, high;
};
// All with as many places as show two digits of the deviation.
SpreadTexts TextsOf(const Spread& spread);

// A metric's value with four places after the point, or as many as a small value needs.
std::string MetricText(double value);
// "3.1 s", "2 min 5 s", "1 h 2 min".
std::string SecondsText(double seconds);

}  // namespace tandem::report
