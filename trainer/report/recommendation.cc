#include "trainer/report/recommendation.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "trainer/report/json.h"

namespace tandem::report {

std::string JsonOf(const Recommendation& recommendation) {
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  if (!recommendation.user.empty()) line["user"] = recommendation.user;
  nlohmann::ordered_json& items = line["items"] = nlohmann::ordered_json::array();
  for (const RecommendedItem& item : recommendation.items) {
    nlohmann::ordered_json entry{
        {"rank", items.size() + 1}, {"score", NineDigits(item.score)}, {"id", item.id}};
    if (recommendation.has_titles) entry["title"] = item.title;
    items.push_back(std::move(entry));
  }
  if (!recommendation.unknown.empty()) line["unknown"] = recommendation.unknown;
  return JsonText(line);
}

}  // namespace tandem::report
