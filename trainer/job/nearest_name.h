// What somebody who mistyped a name probably meant. Thread rule: free functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// Levenshtein's distance, blind to case.
int EditDistance(std::string_view a, std::string_view b);
// From this distance on a name is too far away to be meant.
int TooFar(std::string_view name);
// The closest of `names`, or "" when none is close.
std::string Nearest(std::string_view name, const std::vector<std::string>& names);

}  // namespace tandem
