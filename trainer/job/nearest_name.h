// Guesses which name a user meant who mistyped one.
// Thread rule: free functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tandem {

// The Levenshtein distance, ignoring case.
int EditDistance(std::string_view a, std::string_view b);
// The distance from which on a name is too far from `name` to be suggested.
int TooFar(std::string_view name);
// The closest of `names`, or "" if none is close.
std::string Nearest(std::string_view name, const std::vector<std::string>& names);

}  // namespace tandem
