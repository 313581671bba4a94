#include "trainer/parallel/pipeline/schedule_table.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tandem::parallel {

namespace {

using Slots = std::vector<std::string>;

// Both halves of a whole backward pass have names of their own.
std::vector<std::pair<StageOp, double>> HalvesOf(const StageOp& op, const StageCosts& costs) {
  switch (op.work) {
    case StageWork::FORWARD:
      return {{op, costs.forward}};
    case StageWork::BACKWARD:
      return {{{StageWork::BACKWARD_INPUT, op.chunk, op.microbatch}, costs.backward_input},
              {{StageWork::BACKWARD_WEIGHT, op.chunk, op.microbatch}, costs.backward_weight}};
    case StageWork::BACKWARD_INPUT:
      return {{op, costs.backward_input}};
    case StageWork::BACKWARD_WEIGHT:
      return {{op, costs.backward_weight}};
  }
  return {};
}

}  // namespace

std::string ScheduleTable(const PipelineSchedule& schedule, const ScheduleReport& report,
                          const StageCosts& costs, size_t columns) {
  const auto slot_of = [&](double time) {
    return static_cast<size_t>(std::llround(time * schedule.num_chunks));
  };
  const size_t num_slots = slot_of(report.makespan);
  std::vector<Slots> ranks(report.ranks.size(), Slots(num_slots, "."));
  const std::string busy(1, '-');
  size_t widest = absl::StrCat(num_slots).size();
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const TimedOp& timed : report.ranks[r]) {
      size_t slot = slot_of(timed.begin);
      for (const auto& [half, cost] : HalvesOf(timed.op, costs)) {
        const auto length = static_cast<size_t>(std::llround(cost));
        std::fill_n(ranks[r].begin() + static_cast<std::ptrdiff_t>(slot), length, busy);
        if (length > 0) ranks[r][slot] = half.ToString(schedule.num_chunks);
        if (length > 0) widest = std::max(widest, ranks[r][slot].size());
        slot += length;
      }
    }
  }
  const size_t label = absl::StrCat("rank ", ranks.size() - 1).size();
  const size_t room = columns > label + widest + 1 ? columns - label : widest + 1;
  const size_t per_block = std::max<size_t>(1, room / (widest + 1));
  std::string text;
  const auto add_line = [&](const std::string& head, size_t first, const auto& cell) {
    std::string line = absl::StrFormat("%-*s", static_cast<int>(label), head);
    for (size_t s = first; s < std::min(num_slots, first + per_block); ++s)
      absl::StrAppendFormat(&line, " %-*s", static_cast<int>(widest), std::string(cell(s)));
    absl::StripTrailingAsciiWhitespace(&line);
    absl::StrAppend(&text, line, "\n");
  };
  for (size_t first = 0; first < num_slots; first += per_block) {
    if (first > 0) text += "\n";
    add_line("slot", first, [](size_t s) { return absl::StrCat(s); });
    for (size_t r = 0; r < ranks.size(); ++r)
      add_line(absl::StrCat("rank ", r), first, [&](size_t s) { return ranks[r][s]; });
  }
  return text;
}

}  // namespace tandem::parallel
