#include "trainer/bench/figures.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"

namespace tandem::bench {

double Quantile(std::vector<double> values, double part) {
  TANDEM_CHECK(!values.empty());
  const size_t place =
      std::min(values.size() - 1, static_cast<size_t>(part * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(place), values.end());
  return values[place];
}

std::string FigureText(double value, int places) {
  return value > 0 ? absl::StrFormat("%.*f", places, value) : "-";
}

std::string PercentText(double share) {
  return absl::StrFormat(share < 0.0995 ? "%.2g %%" : "%.0f %%", share * 100);
}

std::string RatioText(double ratio) {
  return ratio < 1.095  ? absl::StrFormat("%.2f", ratio)
         : ratio < 9.95 ? absl::StrFormat("%.1f", ratio)
                        : absl::StrFormat("%.0f", ratio);
}

FigureFile::FigureFile(const std::string& path, const std::string& flag)
    : path_(path), flag_(flag) {
  if (!path.empty()) file_.open(path);
}

std::string FigureFile::WhyNot(const std::string& path, const std::string& flag) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (path.empty()) return "";
  const std::string cannot = absl::StrCat("cannot write ", flag, " ", path, ": ");
  if (fs::is_directory(path, ignored)) return cannot + "a folder is there";
  const fs::path folder = fs::path(path).parent_path();
  if (folder.empty() || fs::is_directory(folder, ignored)) return "";
  return absl::StrCat(cannot, "there is no folder ", folder.string());
}

absl::Status FigureFile::status() const {
  if (path_.empty() || (file_.is_open() && file_.good())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write ", flag_, " ", path_, ": ", std::strerror(errno)));
}

absl::Status FigureFile::Write(const std::vector<std::string>& objects) {
  return WriteText(absl::StrCat("[\n", absl::StrJoin(objects, ",\n"), "\n]\n"));
}

absl::Status FigureFile::WriteText(const std::string& text) {
  if (path_.empty()) return absl::OkStatus();
  file_ << text << std::flush;
  return status();
}

}  // namespace tandem::bench
