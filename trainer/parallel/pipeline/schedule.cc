#include "trainer/parallel/pipeline/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tandem::parallel {

namespace {

using Ops = std::vector<StageOp>;

const char* LettersOf(StageWork work) {
  switch (work) {
    case StageWork::FORWARD:
      return "F";
    case StageWork::BACKWARD:
      return "BW";
    case StageWork::BACKWARD_INPUT:
      return "B";
    case StageWork::BACKWARD_WEIGHT:
      return "W";
  }
  return "?";
}

Ops GPipe(int num_microbatches) {
  Ops ops;
  for (const StageWork work : {StageWork::FORWARD, StageWork::BACKWARD}) {
    for (int m = 0; m < num_microbatches; ++m) ops.push_back({work, 0, m});
  }
  return ops;
}

struct VirtualStep {
  int chunk, microbatch;
};

// The order of forward steps: groups of microbatches pass one chunk after the other. A group has at
// least as many microbatches as there are ranks, because a smaller one would deadlock beside larger
// ones. Groups are as equal as possible, the first the largest.
int NumGroups(const ScheduleOptions& options) {
  return std::max(1, options.num_microbatches / options.num_ranks);
}
int LargestGroup(const ScheduleOptions& options) {
  const int num_groups = NumGroups(options);
  return (options.num_microbatches + num_groups - 1) / num_groups;
}
std::vector<VirtualStep> VirtualSteps(const ScheduleOptions& options) {
  const int num_groups = NumGroups(options);
  std::vector<VirtualStep> steps;
  int first = 0;
  for (int group = 0; group < num_groups; ++group) {
    const int left = options.num_microbatches - first, groups_left = num_groups - group;
    const int end = first + (left + groups_left - 1) / groups_left;
    for (int chunk = 0; chunk < options.num_chunks; ++chunk) {
      for (int m = first; m < end; ++m) steps.push_back({chunk, m});
    }
    first = end;
  }
  return steps;
}

// Some forward steps, then one forward and one backward step in turn, then the other backward
// steps. With one chunk this is 1F1B.
Ops OneForwardOneBackward(const ScheduleOptions& options, int rank) {
  const std::vector<VirtualStep> steps = VirtualSteps(options);
  const auto num_steps = static_cast<int>(steps.size());
  const int to_last = options.num_ranks - 1 - rank;
  const int ahead = options.num_chunks == 1
                        ? to_last
                        : 2 * to_last + (options.num_chunks - 1) * LargestGroup(options);
  const int warm_up = std::min(ahead, num_steps);
  Ops ops;
  for (int k = 0; k < num_steps + warm_up; ++k) {
    if (k < num_steps) ops.push_back({StageWork::FORWARD, steps[k].chunk, steps[k].microbatch});
    if (k < warm_up) continue;
    const VirtualStep& step = steps[k - warm_up];
    ops.push_back({StageWork::BACKWARD, options.num_chunks - 1 - step.chunk, step.microbatch});
  }
  return ops;
}

// 1F1B with split backward passes. Rank r runs the weight half r microbatches late, which fills the
// time in which it would wait.
Ops ZeroBubbleH1(const ScheduleOptions& options, int rank) {
  Ops ops;
  for (const StageOp& op : OneForwardOneBackward(options, rank)) {
    if (op.work == StageWork::FORWARD) {
      ops.push_back(op);
      continue;
    }
    ops.push_back({StageWork::BACKWARD_INPUT, 0, op.microbatch});
    if (op.microbatch >= rank) ops.push_back({StageWork::BACKWARD_WEIGHT, 0, op.microbatch - rank});
  }
  for (int m = std::max(0, options.num_microbatches - rank); m < options.num_microbatches; ++m)
    ops.push_back({StageWork::BACKWARD_WEIGHT, 0, m});
  return ops;
}

}  // namespace

std::string StageOp::ToString(int num_chunks) const {
  return num_chunks == 1 ? absl::StrCat(LettersOf(work), microbatch)
                         : absl::StrCat(LettersOf(work), microbatch, ".", chunk);
}

const char* NameOf(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::GPIPE:
      return "GPIPE";
    case ScheduleKind::ONE_F_ONE_B:
      return "ONE_F_ONE_B";
    case ScheduleKind::INTERLEAVED:
      return "INTERLEAVED";
    case ScheduleKind::ZB_H1:
      return "ZB_H1";
  }
  return "?";
}

std::optional<ScheduleKind> ScheduleKindOf(std::string_view name) {
  for (const ScheduleKind kind : kScheduleKinds) {
    if (name == NameOf(kind)) return kind;
  }
  return std::nullopt;
}

PipelineSchedule MakeSchedule(const ScheduleOptions& options) {
  TANDEM_CHECK(options.num_ranks > 0 && options.num_chunks > 0 && options.num_microbatches > 0);
  TANDEM_CHECK(options.num_chunks == 1 || options.kind == ScheduleKind::INTERLEAVED);
  PipelineSchedule schedule;
  schedule.num_chunks = options.num_chunks;
  schedule.num_microbatches = options.num_microbatches;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    switch (options.kind) {
      case ScheduleKind::GPIPE:
        schedule.ranks.push_back(GPipe(options.num_microbatches));
        break;
      case ScheduleKind::ONE_F_ONE_B:
      case ScheduleKind::INTERLEAVED:
        schedule.ranks.push_back(OneForwardOneBackward(options, rank));
        break;
      case ScheduleKind::ZB_H1:
        schedule.ranks.push_back(ZeroBubbleH1(options, rank));
        break;
    }
  }
  return schedule;
}

PipelineSchedule MakeForwardSchedule(int num_ranks, int num_chunks, int num_microbatches) {
  const ScheduleOptions options{ScheduleKind::INTERLEAVED, num_ranks, num_chunks, num_microbatches};
  std::vector<StageOp> ops;
  for (const VirtualStep& step : VirtualSteps(options))
    ops.push_back({StageWork::FORWARD, step.chunk, step.microbatch});
  PipelineSchedule schedule;
  schedule.num_chunks = num_chunks;
  schedule.num_microbatches = num_microbatches;
  schedule.has_backward = false;
  schedule.ranks.assign(static_cast<size_t>(num_ranks), ops);
  return schedule;
}

}  // namespace tandem::parallel
