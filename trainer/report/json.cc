#include "trainer/report/json.h"

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tandem::report {

std::string JsonText(const nlohmann::ordered_json& value) {
  if (value.is_object()) {
    const auto append = [](std::string* text, const auto& member) {
      absl::StrAppend(text, JsonText(member.first), ":", JsonText(member.second));
    };
    const auto& members = value.get_ref<const nlohmann::ordered_json::object_t&>();
    return absl::StrCat("{", absl::StrJoin(members, ",", append), "}");
  }
  if (value.is_array()) {
    const auto append = [](std::string* text, const auto& item) { *text += JsonText(item); };
    return absl::StrCat("[", absl::StrJoin(value, ",", append), "]");
  }
  if (value.is_number_float()) {
    const double number = value.get<double>();
    // 15 digits bring back any decimal of 15 digits that was rounded to a double.
    return std::isfinite(number) ? absl::StrFormat("%.15g", number) : "null";
  }
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

double NineDigits(double value) {
  return std::strtod(absl::StrFormat("%.9g", value).c_str(), nullptr);
}

double Milliseconds(double seconds) { return std::round(seconds * 1000) / 1000; }

}  // namespace tandem::report
