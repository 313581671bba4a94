// What the benches do with their figures: the middle of several, and the file of --json. Thread rule: one thread.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::bench {

// The value below which the share `part` of all lies. REQUIRES: values, and part in [0, 1].
double Quantile(std::vector<double> values, double part);
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// The file of --json, if asked for. Opened before minutes are spent on what goes into it.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path);
  absl::Status status() const;
  // The printed table: a list of objects, each written by the caller.
  absl::Status Write(const std::vector<std::string>& objects);

 private:
  const std::string path_;
  std::ofstream file_;
};

}  // namespace tandem::bench
