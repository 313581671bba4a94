// The page about one run, or about several runs laid over each other (report.html).
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "trainer/report/page/run_files.h"

namespace tandem::report {

// Returns an HTML file (page.h). One run: what it reached, its charts, its layout and environment,
// all figures of its summary. Several: the same beside each other. Runs that differ in the seed
// alone (seed_groups.h) become one line with a band, and a table of mean and standard deviation.
// REQUIRES: runs is not empty.
std::string RunPage(const std::vector<RunFiles>& runs);

}  // namespace tandem::report
