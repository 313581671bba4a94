// `tandem synthesize`: writes an interaction log with planted structure, and the best score that
// any model can reach on it.
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/base/terminal.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/process/failure.h"
#include "trainer/data/floors.h"
#include "trainer/data/synthetic.h"
#include "trainer/report/text_table.h"
#include "trainer/tasks/ranking/sequence_data.h"

namespace tandem::cli {

int Synthesize(const SynthesizeOptions& options) {
  if (options.users < 1 || options.min_length < 3 || options.max_length < options.min_length ||
      options.items < 2 * options.max_length) {
    std::fprintf(stderr,
                 "error: impossible log: found --users %d --items %d --min-length %d --max-length "
                 "%d; allowed: users >= 1, "
                 "3 <= min-length <= max-length, items >= 2 x max-length\n",
                 options.users, options.items, options.min_length, options.max_length);
    return 2;
  }
  data::SyntheticOptions synthetic;
  synthetic.seed = options.seed;
  synthetic.users = options.users;
  synthetic.items = options.items;
  synthetic.min_length = options.min_length;
  synthetic.max_length = options.max_length;
  const data::SyntheticLog log = data::Generate(synthetic);
  if (const auto parent = std::filesystem::path(options.out).parent_path(); !parent.empty()) {
    std::error_code ignored;  // the write below reports errors
    std::filesystem::create_directories(parent, ignored);
  }
  absl::Status status = data::WriteSequences(log.log, options.out);
  if (status.ok()) status = tasks::WriteReachable(options.out, log.reachable);
  if (!status.ok()) return ReportError(status);
  const data::RankingMetrics popularity = data::Summarise(data::PopularityRanks(log.log).full);
  const data::RankingMetrics transitions = data::Summarise(data::TransitionRanks(log.log).full);
  std::printf("%s: %zu users, %llu items, %zu interactions (seed %llu)\n", options.out.c_str(),
              log.log.users.size(), static_cast<unsigned long long>(log.log.num_items),
              log.log.items.values.size(), static_cast<unsigned long long>(options.seed));
  report::TextTable table({{"test split", report::TextTable::LEFT},
                           {"popularity"},
                           {"transitions"},
                           {"best reachable"}});
  const auto add = [&](const char* name, double data::RankingMetrics::*metric) {
    std::vector<std::string> cells{name};
    for (const data::RankingMetrics& reached : {popularity, transitions, log.reachable})
      cells.push_back(absl::StrFormat("%.4f", reached.*metric));
    table.Add(std::move(cells));
  };
  add("hr@10", &data::RankingMetrics::hr10);
  add("ndcg@10", &data::RankingMetrics::ndcg10);
  std::printf("%s", table.TakeLines(TerminalColumns()).c_str());
  return 0;
}

}  // namespace tandem::cli
