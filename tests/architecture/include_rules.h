// Checks who may include whom, from the #include lines of a source tree.
// The table in include_rules.cc is the architecture. An arrow that is not in the table is
// forbidden.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tandem {

struct IncludeReport {
  int num_files = 0;  // sources read
  std::vector<std::string>
      violations;  // "ps/store/table.cc:7: ps may not include trainer/tasks/task.h"
};

// Reads every source under the top-level folders of `root`.
IncludeReport CheckIncludes(const std::filesystem::path& root);

// Returns why the file `source` may not include `included`, or "". Both are paths from the root.
// An `included` outside our top-level folders belongs to the system or to a library.
std::string WhyForbidden(std::string_view source, std::string_view included);

}  // namespace tandem
