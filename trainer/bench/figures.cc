#include "trainer/bench/figures.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

JsonFile::JsonFile(const std::string& path) : path_(path) {
  if (!path.empty()) file_.open(path);
}

absl::Status JsonFile::status() const {
  if (path_.empty() || (file_.is_open() && file_.good())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write --json ", path_, ": ", std::strerror(errno)));
}

absl::Status JsonFile::Write(const std::vector<std::string>& objects) {
  if (path_.empty()) return absl::OkStatus();
  file_ << "[";
  const char* separator = "\n";
  for (const std::string& object : objects) {
    file_ << separator << object;
    separator = ",\n";
  }
  file_ << "\n]\n" << std::flush;
  return status();
}

absl::Status JsonFile::WriteText(const std::string& json) {
  if (path_.empty()) return absl::OkStatus();
  file_ << json << "\n" << std::flush;
  return status();
}

}  // namespace tandem::bench
