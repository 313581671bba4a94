// The table that `tandem bench pull-push` prints, line by line, each when its case has ended.
// Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "trainer/bench/pull_push_summary.h"
#include "trainer/report/text_table.h"

namespace tandem::bench {

class PullPushTable {
 public:
  // REQUIRES: `plan`, all cases to come, is not empty.
  explicit PullPushTable(const std::vector<PullPushCase>& plan);

  // Explains the figures and prints the headings. Settings that all cases share stand above the
  // table, so that lines are short.
  void PrintHead();
  void Print(const PullPushSummary& summary);

 private:
  struct Setting {
    const char* name;
    report::TextTable::Align align;
    std::string (*text)(const PullPushCase& bench);
  };
  static std::vector<Setting> Settings();
  std::vector<report::TextTable::Column> DivideSettings(const std::vector<PullPushCase>& plan);
  void PrintLines();

  const uint32_t repetitions_;
  std::vector<std::string> shared_;  // "clients 2"
  std::vector<Setting> varying_;
  report::TextTable table_;
};

}  // namespace tandem::bench
