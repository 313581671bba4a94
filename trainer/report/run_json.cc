#include "trainer/report/run_json.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "trainer/report/json.h"

namespace tandem::report {

namespace {

using nlohmann::ordered_json;

ordered_json Figures(const std::map<std::string, double>& metrics) {
  ordered_json figures = ordered_json::object();
  for (const auto& [name, value] : metrics) figures[name] = NineDigits(value);
  return figures;
}

ordered_json Texts(const std::vector<std::pair<std::string, std::string>>& pairs) {
  ordered_json texts = ordered_json::object();
  for (const auto& [name, text] : pairs) texts[name] = text;
  return texts;
}

std::optional<int64_t> WholeNumber(const nlohmann::json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || !member->is_number_integer()) return std::nullopt;
  return member->get<int64_t>();
}

}  // namespace

std::string StepJson(const StepRecord& r) {
  ordered_json json{{"step", r.step},
                    {"epoch", r.epoch},
                    {"time", Milliseconds(r.time)},
                    {"elapsed_seconds", Milliseconds(r.elapsed_seconds)},
                    {"loss", NineDigits(r.loss)},
                    {"lr", NineDigits(r.learning_rate)},
                    {"grad_norm", NineDigits(r.grad_norm)},
                    {"samples_per_second", NineDigits(r.samples_per_second)},
                    {"tokens_per_second", NineDigits(r.tokens_per_second)},
                    {"compute_ms", NineDigits(r.compute_ms)},
                    {"collective_ms", NineDigits(r.collective_ms)},
                    {"pull_ms", NineDigits(r.pull_ms)},
                    {"push_ms", NineDigits(r.push_ms)},
                    {"staleness", r.staleness}};
  if (r.mfu > 0) json["mfu"] = NineDigits(r.mfu);
  if (r.skipped) json["skipped"] = true;
  return JsonText(json);
}

std::string EvaluationJson(const EvaluationRecord& r) {
  return JsonText({{"step", r.step},
                   {"epoch", r.epoch},
                   {"train/loss", NineDigits(r.train_loss)},
                   {"best", r.best},
                   {"metrics", Figures(r.metrics)}});
}

std::string SummaryJson(const RunSummary& s) {
  const ordered_json layout{{"ps", s.layout.ps},    {"dp", s.layout.dp}, {"tp", s.layout.tp},
                            {"pp", s.layout.pp},    {"cp", 1},           {"ep", 1},
                            {"zero", s.layout.zero}};
  ordered_json collective_bytes = ordered_json::object();
  for (const auto& [axis, bytes] : s.collective_bytes) collective_bytes[axis] = bytes;
  ordered_json bubble;  // null
  if (s.bubble.has_value()) {
    bubble = {{"simulated", NineDigits(s.bubble->simulated)}, {"measured", nullptr}};
    if (s.bubble->measured.has_value()) bubble["measured"] = NineDigits(*s.bubble->measured);
  }
  const auto largest = std::max_element(s.model_state_bytes.begin(), s.model_state_bytes.end());
  ordered_json references = ordered_json::object();
  for (const tasks::ReferenceColumn& column : s.references)
    references[column.name] = Figures(column.metrics);
  ordered_json hash;  // null
  if (s.params_hash.has_value()) hash = HashText(*s.params_hash);
  return JsonText({{"job", s.job},
                   {"status", s.status},
                   {"seed", s.seed},
                   {"steps", s.steps},
                   {"epochs", s.epochs},
                   {"best_epoch", s.best_epoch},
                   {"best_step", s.best_step},
                   {"seconds", NineDigits(s.seconds)},
                   {"layout", layout},
                   {"model_state_bytes", largest == s.model_state_bytes.end() ? 0 : *largest},
                   {"model_state_bytes_by_rank", s.model_state_bytes},
                   {"collective_bytes", collective_bytes},
                   {"pulled_rows", s.pulled_rows},
                   {"pulled_rows_by_rank", s.pulled_rows_by_rank},
                   {"served_rows", s.served_rows},
                   {"bubble", bubble},
                   {"metrics", Figures(s.metrics)},
                   {"samples_per_second", NineDigits(s.samples_per_second)},
                   {"tokens_per_second", NineDigits(s.tokens_per_second)},
                   {"params_hash", hash},
                   {"sparse_rows", s.sparse_rows},
                   {"dense_parameters", s.dense_parameters},
                   {"references", references},
                   {"version", s.program.version},
                   {"environment", Texts(s.program.environment)},
                   {"settings", Texts(s.settings)}});
}

std::optional<RecordPlace> PlaceOfRecord(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const std::optional<int64_t> step = WholeNumber(json, "step");
  if (!step.has_value()) return std::nullopt;
  return RecordPlace{*step, WholeNumber(json, "epoch")};
}

namespace {

// An object; empty if there is no readable summary.
nlohmann::json ReadSummary(const std::string& folder) {
  std::ifstream file(folder + "/summary.json");
  std::ostringstream text;
  text << file.rdbuf();  // a parser that reads the file itself throws when reading fails
  auto json = file ? nlohmann::json::parse(text.str(), nullptr, /*allow_exceptions=*/false)
                   : nlohmann::json();
  return json.is_object() ? json : nlohmann::json::object();
}

}  // namespace

std::optional<std::string> StatusOfRun(const std::string& folder) {
  const nlohmann::json summary = ReadSummary(folder);
  const auto status = summary.find("status");
  if (status == summary.end() || !status->is_string()) return std::nullopt;
  return status->get<std::string>();
}

int64_t StepsOfRun(const std::string& folder) {
  const nlohmann::json summary = ReadSummary(folder);
  const auto steps = summary.find("steps");
  return steps != summary.end() && steps->is_number_integer() ? steps->get<int64_t>() : 0;
}

std::map<std::string, double> MetricsOfRun(const std::string& folder) {
  const nlohmann::json summary = ReadSummary(folder);
  std::map<std::string, double> metrics;
  const auto found = summary.find("metrics");
  if (found == summary.end() || !found->is_object()) return metrics;
  for (const auto& [name, value] : found->items()) {
    if (value.is_number()) metrics[name] = value.get<double>();
  }
  return metrics;
}

}  // namespace tandem::report
