#include "trainer/loop/replica/whole_model.h"

#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/gather_bytes.h"
#include "trainer/comm/text.h"

namespace tandem::loop {

namespace {

// A line for each parameter: its name and its dimensions, separated by spaces.
std::string TextOf(const std::vector<optim::LogicalParameter>& parameters) {
  std::string text;
  for (const optim::LogicalParameter& parameter : parameters) {
    absl::StrAppend(&text, parameter.name);
    for (int d = 0; d < parameter.shape.num_dims(); ++d)
      absl::StrAppend(&text, " ", parameter.shape[d]);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

absl::StatusOr<optim::LogicalParameter> ParameterOf(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  std::vector<int64_t> dims;
  for (size_t i = 1; i < words.size(); ++i) {
    if (!absl::SimpleAtoi(words[i], &dims.emplace_back()))
      return absl::InternalError(absl::StrCat("a stage describes a parameter by \"", line, "\""));
  }
  return optim::LogicalParameter{words[0], Shape(dims)};
}

}  // namespace

absl::StatusOr<std::vector<optim::LogicalParameter>> WholeModel(const ParameterSet& here,
                                                                comm::ProcessGroup& stages,
                                                                absl::Time deadline) {
  if (stages.size() == 1) return optim::LogicalParametersOf(here);
  const uint64_t tag = StableHash("parameters of stages");
  ASSIGN_OR_RETURN(
      const std::vector<std::string> texts,
      comm::GatherBytes(stages, TextOf(optim::LogicalParametersOf(here)), tag, deadline));
  ASSIGN_OR_RETURN(const std::string all,
                   comm::BroadcastText(stages, absl::StrJoin(texts, ""), /*root=*/0,
                                       {.tag = tag, .timeout = deadline - absl::Now()}));
  std::vector<optim::LogicalParameter> parameters;
  std::set<std::string> names;  // a tied parameter is in two stages
  for (const absl::string_view line : absl::StrSplit(all, '\n', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(optim::LogicalParameter parameter, ParameterOf(std::string(line)));
    if (names.insert(parameter.name).second) parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace tandem::loop
