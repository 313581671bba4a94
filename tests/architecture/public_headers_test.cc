// Holds the examples to the public headers, which an installed tree has.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> PublicHeaders() {
  std::ifstream file(fs::path(TANDEM_SOURCE_DIR) / "deploy/public_headers.txt");
  std::vector<std::string> headers;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') headers.push_back(line);
  return headers;
}

// Returns the headers of the product that `source` includes.
std::vector<std::string> Included(const fs::path& source) {
  static const std::regex* const pattern =
      new std::regex(R"re(^#include "((kernels|rpc|ps|trainer)/[^"]+)")re");
  std::ifstream file(source);
  std::vector<std::string> headers;
  std::smatch match;
  for (std::string line; std::getline(file, line);)
    if (std::regex_search(line, match, *pattern)) headers.push_back(match[1]);
  return headers;
}

TEST(PublicHeadersTest, EveryHeaderOfTheListExists) {
  EXPECT_FALSE(PublicHeaders().empty());
  for (const std::string& header : PublicHeaders())
    EXPECT_TRUE(fs::exists(fs::path(TANDEM_SOURCE_DIR) / header)) << header;
}

TEST(PublicHeadersTest, ExamplesIncludeNoOthers) {
  const std::vector<std::string> headers = PublicHeaders();
  const std::set<std::string> allowed(headers.begin(), headers.end());
  int num_includes = 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(TANDEM_SOURCE_DIR) / "examples")) {
    for (const std::string& header : Included(entry.path())) {
      ++num_includes;
      EXPECT_EQ(allowed.count(header), 1)
          << entry.path() << " includes " << header << ", which deploy/public_headers.txt lacks";
    }
  }
  EXPECT_GT(num_includes, 0);
}

}  // namespace
}  // namespace tandem
