#include "trainer/remote/module.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"

namespace tandem::remote {

absl::StatusOr<ModuleArguments> ModuleArguments::Parse(const std::string& text) {
  ModuleArguments arguments;
  for (const std::string& word :
       std::vector<std::string>(absl::StrSplit(text, ' ', absl::SkipEmpty()))) {
    const size_t sign = word.find('=');
    if (sign == std::string::npos || sign == 0)
      return absl::InvalidArgumentError(absl::StrCat("argument '", word, "' is no name=value"));
    if (!arguments.values_.emplace(word.substr(0, sign), word.substr(sign + 1)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument '", word.substr(0, sign), "' is given twice"));
    }
  }
  return arguments;
}

void ModuleArguments::Note(const std::string& what) {
  if (noted_.ok()) noted_ = absl::InvalidArgumentError(what);
}

bool ModuleArguments::Take(const std::string& name, bool required, std::string* value) {
  absl::StrAppend(&asked_, asked_.empty() ? "" : ", ", name);
  const auto found = values_.find(name);
  if (found == values_.end()) {
    if (required) Note(absl::StrCat("argument '", name, "' is missing"));
    return false;
  }
  *value = found->second;
  values_.erase(found);
  return true;
}

int64_t ModuleArguments::InRange(const std::string& name, const std::string& text, int64_t least,
                                 int64_t most) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= least && value <= most) return value;
  Note(absl::StrCat("argument ", name, "=", text, " is no number from ", least, " to ", most));
  return least;
}

int64_t ModuleArguments::Integer(const std::string& name, int64_t least, int64_t most) {
  std::string text;
  return Take(name, true, &text) ? InRange(name, text, least, most) : least;
}

int64_t ModuleArguments::Integer(const std::string& name, int64_t least, int64_t most,
                                 int64_t otherwise) {
  std::string text;
  return Take(name, false, &text) ? InRange(name, text, least, most) : otherwise;
}

double ModuleArguments::Number(const std::string& name, double otherwise) {
  std::string text;
  if (!Take(name, false, &text)) return otherwise;
  double value = 0;
  if (!absl::SimpleAtod(text, &value))
    Note(absl::StrCat("argument ", name, "=", text, " is no number"));
  return value;
}

std::string ModuleArguments::Text(const std::string& name, const std::string& otherwise) {
  std::string text;
  return Take(name, false, &text) ? text : otherwise;
}

std::vector<int64_t> ModuleArguments::Integers(const std::string& name, int64_t least,
                                               int64_t most) {
  std::string text;
  std::vector<int64_t> values;
  if (!Take(name, true, &text)) return values;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    values.push_back(InRange(name, word, least, most));
  }
  return values;
}

int ModuleArguments::Choice(const std::string& name, const std::vector<std::string>& choices) {
  std::string text;
  if (!Take(name, false, &text)) return 0;
  const auto found = std::find(choices.begin(), choices.end(), text);
  if (found != choices.end()) return static_cast<int>(found - choices.begin());
  Note(absl::StrCat("argument ", name, "=", text, " is none of ", absl::StrJoin(choices, ", ")));
  return 0;
}

absl::Status ModuleArguments::status() const {
  if (!noted_.ok() || values_.empty()) return noted_;
  return absl::InvalidArgumentError(
      absl::StrCat("there is no argument '", values_.begin()->first, "'; there are: ", asked_));
}

void ModuleRegistry::Add(const std::string& name, Constructor constructor) {
  TANDEM_CHECK(constructors_.emplace(name, std::move(constructor)).second)
      << name << " is there already";
}

absl::StatusOr<ModuleRegistry::Made> ModuleRegistry::Make(const std::string& name,
                                                          const std::string& arguments) const {
  const auto constructor = constructors_.find(name);
  if (constructor == constructors_.end()) {
    const auto add = [](std::string* out, const auto& entry) { out->append(entry.first); };
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no module '", name, "'; there are: ", absl::StrJoin(constructors_, ", ", add)));
  }
  ASSIGN_OR_RETURN(ModuleArguments parsed, ModuleArguments::Parse(arguments));
  const auto seed =
      static_cast<uint64_t>(parsed.Integer("seed", 0, std::numeric_limits<int64_t>::max(), 0));
  const DType dtype = parsed.Choice("dtype", {"f32", "f64"}) == 0 ? DType::F32 : DType::F64;
  Made made;
  made.parameters = std::make_unique<ParameterSet>(seed, dtype);
  auto module = constructor->second(parsed, *made.parameters);
  if (absl::Status status = module.ok() ? parsed.status() : module.status(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("module ", name, ": ", status.message()));
  }
  made.module = *std::move(module);
  return made;
}

}  // namespace tandem::remote
