#include "trainer/bench/pull_push_table.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/terminal.h"
#include "ps/wire/wire_codec.h"
#include "trainer/bench/figures.h"
#include "trainer/cli/help_text.h"

namespace tandem::bench {

using report::TextTable;

PullPushTable::PullPushTable(const std::vector<PullPushCase>& plan)
    : repetitions_(plan.front().repetitions()), table_(DivideSettings(plan), /*indent=*/0) {}

std::vector<PullPushTable::Setting> PullPushTable::Settings() {
  using Case = PullPushCase;
  return {
      {"mode", TextTable::LEFT, [](const Case& c) { return std::string(ModeName(c)); }},
      {"clients", TextTable::RIGHT, [](const Case& c) { return absl::StrCat(c.clients()); }},
      {"servers", TextTable::RIGHT, [](const Case& c) { return absl::StrCat(c.servers()); }},
      {"threads", TextTable::RIGHT, [](const Case& c) { return absl::StrCat(c.threads()); }},
      {"permits", TextTable::RIGHT, [](const Case& c) { return absl::StrCat(c.permits()); }},
      {"dim", TextTable::RIGHT, [](const Case& c) { return absl::StrCat(c.dim()); }},
      {"ids", TextTable::LEFT, [](const Case& c) { return std::string(IdsName(c)); }},
      {"path", TextTable::LEFT, [](const Case& c) { return std::string(PathName(c)); }},
      {"wire", TextTable::LEFT, [](const Case& c) { return std::string(ps::NameOf(c.wire())); }}};
}

// Fills shared_ and varying_, and returns the columns of the table.
std::vector<TextTable::Column> PullPushTable::DivideSettings(
    const std::vector<PullPushCase>& plan) {
  std::vector<TextTable::Column> columns;
  for (const Setting& setting : Settings()) {
    std::set<std::string> texts;
    size_t width = 0;
    for (const PullPushCase& bench : plan) {
      width = std::max(width, texts.insert(setting.text(bench)).first->size());
    }
    if (texts.size() == 1) {
      shared_.push_back(absl::StrCat(setting.name, " ", *texts.begin()));
    } else {
      columns.push_back({setting.name, setting.align, width});
      varying_.push_back(setting);
    }
  }
  for (const char* heading : {"M rows/s", "GB/s", "p50 ms", "p99 ms", "wait+own+wait", "raw GB/s",
                              "share", "pull", "push"})
    columns.push_back({heading, TextTable::RIGHT, 4});
  return columns;
}

void PullPushTable::PrintHead() {
  std::string text = absl::StrFormat(
      "A row: an id looked up, pulled and (unless the mode is pull) its gradient pushed once, over "
      "all clients. GB/s: 8 bytes of id and what the row travels as for each pull and for each "
      "push of a distinct id, over the whole step. wait+own+wait: a client's step is the wait for "
      "rows, work of its own (in hybrid modes the dense net and its all-reduce) and the wait for "
      "pushes and the commit; pull_push works in parts of its ids: rows of some are on their way "
      "while gradients of others are made and pushed. raw: streams of 1 MB messages gathered in "
      "pieces of 256 bytes and copied out, on the same path between the same processes; its share: "
      "our GB/s while clients wait for pulls or pushes, of raw (of pull_push, where one goes on "
      "during the other, the whole share tells most). permits: steps of a client that may be under "
      "way. %d repetitions, medians.\n",
      repetitions_);
  if (!shared_.empty()) absl::StrAppend(&text, "All lines: ", absl::StrJoin(shared_, ", "), ".\n");
  std::printf("%s", cli::WrapHelp(text, cli::HelpColumns()).c_str());
  PrintLines();
}

void PullPushTable::Print(const PullPushSummary& m) {
  std::vector<std::string> cells;
  for (const Setting& setting : varying_) cells.push_back(setting.text(m.bench));
  const std::string split = absl::StrFormat("%.1f+%.1f+%.1f", m.pull_seconds * 1e3,
                                            m.own_seconds * 1e3, m.push_seconds * 1e3);
  for (std::string figure :
       {FigureText(m.rows_per_second * 1e-6, 3), FigureText(m.bytes_per_second * 1e-9, 2),
        FigureText(m.p50_seconds * 1e3, 3), FigureText(m.p99_seconds * 1e3, 3), split,
        FigureText(m.raw_bytes_per_second * 1e-9, 2), FigureText(m.ratio, 2),
        FigureText(m.pull_ratio, 2), FigureText(m.push_ratio, 2)})
    cells.push_back(std::move(figure));
  table_.Add(std::move(cells));
  PrintLines();
  if (!m.wrong.empty()) std::printf("FAIL: %s\n", m.wrong.c_str());
  std::fflush(stdout);
}

void PullPushTable::PrintLines() {
  std::printf("%s", table_.TakeLines(TerminalColumns()).c_str());
  std::fflush(stdout);
}

}  // namespace tandem::bench
