#include "trainer/job/custom_options.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/utf8.h"
#include "proto/job.pb.h"
#include "trainer/job/nearest_name.h"
#include "trainer/job/number_text.h"

namespace tandem::job {

namespace {

std::string PathOf(const std::string& name) { return absl::StrCat("model.custom.options.", name); }

}  // namespace

CustomOptions::CustomOptions(const Job& job, Limits* limits) : job_(job), limits_(limits) {}

const std::string* CustomOptions::Find(const std::string& name) const {
  const auto& given = job_.model().custom().options().values();
  const auto found = given.find(name);
  return found == given.end() ? nullptr : &found->second;
}

void CustomOptions::Refuse(const std::string& name, const std::string& found,
                           const std::string& allowed) {
  TANDEM_CHECK(limits_ != nullptr) << "option " << name << " of a checked job is " << found;
  limits_->Refuse(PathOf(name), found.empty() ? "\"\"" : Printable(found), allowed);
}

void CustomOptions::Fail(const std::string& name, const std::string& what) {
  if (limits_ != nullptr) limits_->Fail(PathOf(name), what);
}

int64_t CustomOptions::Int(const std::string& name, int64_t otherwise, int64_t low, int64_t high) {
  int64_t value = otherwise;
  if (const std::string* text = Find(name); text != nullptr) {
    const std::optional<int64_t> given = ParseSigned(*text, std::numeric_limits<int64_t>::max());
    const bool fine = given.has_value() && low <= *given && *given <= high;
    if (fine)
      value = *given;
    else
      Refuse(name, *text, absl::StrCat("a whole number, ", low, " .. ", high));
  }
  read_[name] = absl::StrCat(value);
  return value;
}

double CustomOptions::Double(const std::string& name, double otherwise, double low, double high) {
  double value = otherwise;
  if (const std::string* text = Find(name); text != nullptr) {
    const std::optional<double> given = ParseReal(*text, std::numeric_limits<double>::max());
    const bool fine = given.has_value() && low <= *given && *given <= high;
    if (fine)
      value = *given;
    else
      Refuse(name, *text, absl::StrCat("a number, ", TextOf(low), " .. ", TextOf(high)));
  }
  read_[name] = TextOf(value);
  return value;
}

bool CustomOptions::Bool(const std::string& name, bool otherwise) {
  bool value = otherwise;
  if (const std::string* text = Find(name); text != nullptr) {
    const std::optional<bool> given = ParseBool(*text);
    if (given.has_value())
      value = *given;
    else
      Refuse(name, *text, "true, false");
  }
  read_[name] = value ? "true" : "false";
  return value;
}

std::string CustomOptions::String(const std::string& name, const std::string& otherwise,
                                  const std::vector<std::string>& allowed) {
  std::string value = otherwise;
  if (const std::string* text = Find(name); text != nullptr) {
    const bool fine =
        allowed.empty() || std::find(allowed.begin(), allowed.end(), *text) != allowed.end();
    if (fine)
      value = *text;
    else
      Refuse(name, *text, absl::StrJoin(allowed, ", "));
  }
  read_[name] = value;
  return value;
}

void CustomOptions::RefuseUnknown() {
  TANDEM_CHECK(limits_ != nullptr);
  std::vector<std::string> known, unknown;
  for (const auto& [name, value] : read_) known.push_back(name);
  for (const auto& [name, value] : job_.model().custom().options().values()) {
    if (read_.count(name) == 0) unknown.push_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  const std::string there =
      known.empty() ? "no options" : absl::StrCat("the options ", absl::StrJoin(known, ", "));
  for (const std::string& name : unknown) {
    const std::string nearest = Nearest(name, known);
    limits_->Fail(
        PathOf(name),
        absl::StrCat(
            "unknown option \"", Printable(name), "\" of ", job_.model().custom().name(),
            nearest.empty() ? "; it" : absl::StrCat("; did you mean \"", nearest, "\"? It"),
            " has ", there));
  }
}

}  // namespace tandem::job
