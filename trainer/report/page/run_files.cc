#include "trainer/report/page/run_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/utf8.h"

namespace tandem::report {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostLevels = 4;        // of objects in objects
constexpr size_t kMostElements = 16;  // of an array, in text

// A reader of a device or a pipe would wait for ever.
std::ifstream OpenRegular(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? std::ifstream(path) : std::ifstream();
}

Json Parsed(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

double NumberIn(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_number() ? member->get<double>() : kUnknown;
}

std::map<std::string, double> NumbersOf(const Json& object) {
  std::map<std::string, double> numbers;
  if (!object.is_object()) return numbers;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) numbers[name] = value.get<double>();
  }
  return numbers;
}

std::string TextOf(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return absl::StrFormat("%.9g", value.get<double>());
  if (value.is_number()) return value.dump();
  if (value.is_null()) return "none";
  if (!value.is_array()) return "...";
  std::vector<std::string> elements;
  for (const Json& element : value) {
    if (elements.size() == kMostElements) break;
    elements.push_back(element.is_structured() ? "..." : TextOf(element));
  }
  if (elements.size() < value.size()) elements.push_back(absl::StrCat("... (", value.size(), ")"));
  return absl::StrJoin(elements, ", ");
}

void AddFigures(const Json& object, const std::string& prefix, int level, RunFiles* run) {
  for (const auto& [name, value] : object.items()) {
    const std::string whole = prefix + name;
    if (value.is_object() && !value.empty() && level < kMostLevels) {
      AddFigures(value, whole + ".", level + 1, run);
      continue;
    }
    run->figures.emplace_back(whole, value.is_object() && value.empty() ? "none" : TextOf(value));
    if (value.is_number()) run->numbers[whole] = value.get<double>();
  }
}

void ReadSummary(const std::string& path, RunFiles* run) {
  std::ifstream file = OpenRegular(path);
  if (!file.is_open()) return;
  std::ostringstream text;
  text << file.rdbuf();
  const Json summary = Parsed(text.str());
  if (!summary.is_object()) return;
  run->has_summary = true;
  AddFigures(summary, "", 1, run);
  if (const auto metrics = summary.find("metrics"); metrics != summary.end())
    run->metrics = NumbersOf(*metrics);
  const auto references = summary.find("references");
  if (references == summary.end() || !references->is_object()) return;
  for (const auto& [name, metrics] : references->items())
    run->references.emplace_back(name, NumbersOf(metrics));
}

// Calls `add` with each line that is an object with a step.
void ReadLines(const std::string& path, size_t* num_unread,
               const std::function<void(const Json&)>& add) {
  std::ifstream file = OpenRegular(path);
  for (std::string line; std::getline(file, line);) {
    const Json record = Parsed(line);
    if (record.is_object() && !std::isnan(NumberIn(record, "step"))) {
      add(record);
    } else {
      ++*num_unread;
    }
  }
}

void AddStep(const Json& record, RunFiles* run) {
  RunStep step;
  step.step = NumberIn(record, "step");
  step.epoch = NumberIn(record, "epoch");
  step.loss = NumberIn(record, "loss");
  step.learning_rate = NumberIn(record, "lr");
  step.samples_per_second = NumberIn(record, "samples_per_second");
  step.tokens_per_second = NumberIn(record, "tokens_per_second");
  step.compute_ms = NumberIn(record, "compute_ms");
  step.collective_ms = NumberIn(record, "collective_ms");
  step.pull_ms = NumberIn(record, "pull_ms");
  step.push_ms = NumberIn(record, "push_ms");
  step.staleness = NumberIn(record, "staleness");
  const auto skipped = record.find("skipped");
  step.skipped = skipped != record.end() && skipped->is_boolean() && skipped->get<bool>();
  run->steps.push_back(step);
}

void AddEvaluation(const Json& record, RunFiles* run) {
  RunEvaluation evaluation;
  evaluation.step = NumberIn(record, "step");
  evaluation.epoch = NumberIn(record, "epoch");
  evaluation.train_loss = NumberIn(record, "train/loss");
  if (const auto metrics = record.find("metrics"); metrics != record.end())
    evaluation.metrics = NumbersOf(*metrics);
  run->evaluations.push_back(std::move(evaluation));
}

template <typename Record>
void SortBySteps(std::vector<Record>& records) {
  std::stable_sort(records.begin(), records.end(),
                   [](const Record& a, const Record& b) { return a.step < b.step; });
}

}  // namespace

std::string RunFiles::Figure(const std::string& name) const {
  for (const auto& [figure, text] : figures) {
    if (figure == name) return text;
  }
  return "";
}

double RunFiles::Number(const std::string& name) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? kUnknown : found->second;
}

absl::StatusOr<RunFiles> ReadRun(const std::string& folder) {
  RunFiles run;
  run.folder = folder;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    return absl::InvalidArgumentError(absl::StrCat("there is no folder ", Printable(folder)));
  ReadSummary(folder + "/summary.json", &run);
  ReadLines(folder + "/metrics.jsonl", &run.num_unread_lines,
            [&run](const Json& record) { AddStep(record, &run); });
  ReadLines(folder + "/evaluations.jsonl", &run.num_unread_lines,
            [&run](const Json& record) { AddEvaluation(record, &run); });
  if (!run.has_summary && run.steps.empty() && run.evaluations.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("folder ", Printable(folder),
                     " holds no record of a run; give a folder that --out named, with "
                     "metrics.jsonl or summary.json"));
  }
  SortBySteps(run.steps);
  SortBySteps(run.evaluations);
  return run;
}

}  // namespace tandem::report
