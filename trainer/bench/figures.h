// The figures of the benches: quantiles, their text, and the file of --json.
// Thread rule: one thread.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::bench {

// The value below which the share `part` of all values lies.
// REQUIRES: `values` is not empty; `part` is in [0, 1].
double Quantile(std::vector<double> values, double part);
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// "12.34"; "-" unless `value` is above 0, because it was not measured.
std::string FigureText(double value, int places);

// "0.1 %", "1.9 %", "43 %"
std::string PercentText(double share);
// "1.05", "1.3", "24"
std::string RatioText(double ratio);

// A file that a flag names, if the flag is given. Opened early, so that a bad path fails before
// minutes of measurement.
class FigureFile {
 public:
  explicit FigureFile(const std::string& path, const std::string& flag = "--json");
  absl::Status status() const;
  // Says why no file can be at `path`, without opening it; empty: nothing speaks against it.
  static std::string WhyNot(const std::string& path, const std::string& flag);
  // Writes the printed table as a list of JSON objects; the caller formats each object.
  absl::Status Write(const std::vector<std::string>& objects);
  absl::Status WriteText(const std::string& text);

 private:
  const std::string path_, flag_;
  std::ofstream file_;
};

}  // namespace tandem::bench
