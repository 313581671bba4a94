// Finds real data that the tree does not hold, in the folder TANDEM_TEST_DATA (default: ../shared
// beside the tree).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tandem::data {

inline std::filesystem::path RealDataRoot() {
  const char* set = std::getenv("TANDEM_TEST_DATA");
  return set != nullptr ? set : TANDEM_SOURCE_DIR "/../shared";
}

// The file `name`, e.g. "lastfm/LastFM.txt", in the root itself or below its data/. Empty if there
// is none.
inline std::string RealDataFile(const std::string& name) {
  for (const std::string& place : {name, "data/" + name}) {
    if (std::filesystem::exists(RealDataRoot() / place)) return RealDataRoot() / place;
  }
  return "";
}

}  // namespace tandem::data
