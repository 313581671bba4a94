// `tandem report`: makes the page of a run again, or lays several runs over each other.
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/utf8.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/report/run_output.h"

namespace tandem::cli {

namespace {

namespace fs = std::filesystem;

std::string OutOf(const ReportOptions& options) {
  if (!options.out.empty()) return options.out;
  return options.folders.size() == 1 ? report::RunPagePath(options.folders[0]) : "report.html";
}

// Returns why no page can be written to `path`; empty: nothing is known against it.
std::string WhyNoPageAt(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return absl::StrCat("--out ", Printable(path), " is a folder; name a file in it");
  const fs::path parent = fs::path(path).parent_path();
  if (parent.empty() || fs::is_directory(parent, ignored)) return "";
  return absl::StrCat("--out ", Printable(path), ": there is no folder ",
                      Printable(parent.string()));
}

}  // namespace

int Report(const ReportOptions& options) {
  const std::string out = OutOf(options);
  std::vector<std::string> errors;
  auto page = report::MakeRunPage(options.folders);
  if (!page.ok()) errors.emplace_back(page.status().message());
  if (const std::string why = WhyNoPageAt(out); !options.out.empty() && !why.empty())
    errors.push_back(why);
  if (!errors.empty()) return ReportError(absl::InvalidArgumentError(absl::StrJoin(errors, "\n")));
  if (const absl::Status written = report::WriteRunPage(*page, out); !written.ok())
    return ReportError(written);
  std::printf("wrote %s, a page about %zu run%s\n", Printable(out).c_str(), options.folders.size(),
              options.folders.size() == 1 ? "" : "s");
  return 0;
}

}  // namespace tandem::cli
