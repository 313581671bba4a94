#include "ps/server/allowed_folders.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::ps {

namespace {

namespace fs = std::filesystem;

std::string Normal(const fs::path& path) {
  std::string text = path.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::vector<std::string> Absolute(const std::vector<std::string>& folders) {
  std::vector<std::string> absolute;
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path path = fs::absolute(folder, error);
    if (!error) absolute.push_back(Normal(path));
  }
  return absolute;
}

bool IsBelow(const std::string& folder, const std::string& parent) {
  const fs::path inside = fs::path(folder), outside = fs::path(parent);
  return std::mismatch(outside.begin(), outside.end(), inside.begin(), inside.end()).first ==
         outside.end();
}

absl::Status Check(const char* what, const std::string& folder,
                   const std::vector<std::string>& allowed) {
  const std::string normal = Normal(folder);
  const auto contains = [&](const std::string& parent) { return IsBelow(normal, parent); };
  if (std::any_of(allowed.begin(), allowed.end(), contains)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("this server ", what, " checkpoints below ", absl::StrJoin(allowed, " and "),
                   " alone, not ", folder, ": start every role of a job with the same --out"));
}

}  // namespace

AllowedFolders::AllowedFolders(const FolderLimits& limits)
    : limited_(true),
      save_below_(Absolute(limits.save_below)),
      load_below_(Absolute(limits.load_below)) {}

absl::Status AllowedFolders::CheckSave(const std::string& folder) const {
  return limited_ ? Check("saves", folder, save_below_) : absl::OkStatus();
}

absl::Status AllowedFolders::CheckLoad(const std::string& folder) const {
  return limited_ ? Check("loads", folder, load_below_) : absl::OkStatus();
}

}  // namespace tandem::ps
