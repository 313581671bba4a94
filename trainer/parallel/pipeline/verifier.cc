#include "trainer/parallel/pipeline/verifier.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

namespace {

// One half of one stage's work on a microbatch, for which another may wait.
enum class Half : uint8_t { FORWARD, INPUT, WEIGHT };
struct Part {
  Half half;
  int stage, microbatch;
  auto operator<=>(const Part&) const = default;
};

// A position in a rank's list.
struct Place {
  int rank;
  size_t index;
};

class Replay {
 public:
  Replay(const PipelineSchedule& schedule, const StageCosts& costs)
      : schedule_(schedule), costs_(costs) {}

  absl::StatusOr<ScheduleReport> Run() {
    RETURN_IF_ERROR(CheckComplete());
    RETURN_IF_ERROR(CheckOwnOrder());
    RETURN_IF_ERROR(CheckMessages());
    Play();
    RETURN_IF_ERROR(CheckEnded());
    return Report();
  }

 private:
  using Ops = std::vector<StageOp>;

  std::string NameOf(const StageOp& op) const { return op.ToString(schedule_.num_chunks); }
  std::string NameOf(const Place& place) const {
    return absl::StrCat(NameOf(schedule_.ranks[place.rank][place.index]), " of rank ", place.rank);
  }
  std::vector<Part> PartsOf(int rank, const StageOp& op) const {
    const int stage = schedule_.StageOf(rank, op.chunk);
    switch (op.work) {
      case StageWork::FORWARD:
        return {{Half::FORWARD, stage, op.microbatch}};
      case StageWork::BACKWARD:
        return {{Half::INPUT, stage, op.microbatch}, {Half::WEIGHT, stage, op.microbatch}};
      case StageWork::BACKWARD_INPUT:
        return {{Half::INPUT, stage, op.microbatch}};
      case StageWork::BACKWARD_WEIGHT:
        return {{Half::WEIGHT, stage, op.microbatch}};
    }
    return {};
  }
  // The part of the same stage that comes before. Nothing before a forward.
  static std::optional<Part> OwnNeed(Part part) {
    if (part.half == Half::FORWARD) return std::nullopt;
    part.half = part.half == Half::INPUT ? Half::FORWARD : Half::INPUT;
    return part;
  }
  // The part of a neighbouring stage whose message an operation needs.
  std::optional<Part> Message(int rank, const StageOp& op) const {
    const int stage = schedule_.StageOf(rank, op.chunk);
    if (op.work == StageWork::BACKWARD_WEIGHT) return std::nullopt;
    const bool forward = op.work == StageWork::FORWARD;
    if (stage == (forward ? 0 : schedule_.num_stages() - 1)) return std::nullopt;
    return Part{forward ? Half::FORWARD : Half::INPUT, stage + (forward ? -1 : 1), op.microbatch};
  }
  double CostOf(const StageOp& op) const {
    const double whole = op.work == StageWork::FORWARD ? costs_.forward
                         : op.work == StageWork::BACKWARD
                             ? costs_.backward_input + costs_.backward_weight
                         : op.work == StageWork::BACKWARD_INPUT ? costs_.backward_input
                                                                : costs_.backward_weight;
    return whole / schedule_.num_chunks;
  }

  // Every part of every stage and microbatch is there once.
  absl::Status CheckComplete();
  // A stage's parts of a microbatch are in order.
  absl::Status CheckOwnOrder() const;
  // Both ends of an edge have its messages in one order.
  absl::Status CheckMessages() const;
  void Play();
  absl::Status CheckEnded() const;
  ScheduleReport Report() const;

  const PipelineSchedule& schedule_;
  const StageCosts& costs_;
  std::map<Part, Place> places_;
  std::map<Part, double> ends_;
  std::vector<std::vector<TimedOp>> done_;
};

absl::Status Replay::CheckComplete() {
  for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
    const Ops& ops = schedule_.ranks[rank];
    for (size_t i = 0; i < ops.size(); ++i) {
      const StageOp& op = ops[i];
      if (op.chunk < 0 || op.chunk >= schedule_.num_chunks || op.microbatch < 0 ||
          op.microbatch >= schedule_.num_microbatches) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " has ", NameOf(op), ", with ", schedule_.num_chunks,
                         " chunks and ", schedule_.num_microbatches, " microbatches"));
      }
      if (!schedule_.has_backward && op.work != StageWork::FORWARD) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " has ", NameOf(op), " in a schedule of forwards alone"));
      }
      for (const Part& part : PartsOf(rank, op)) {
        if (!places_.emplace(part, Place{rank, i}).second)
          return absl::InvalidArgumentError(
              absl::StrCat("rank ", rank, " has the work of ", NameOf(op), " twice"));
      }
    }
  }
  for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
    for (int m = 0; m < schedule_.num_microbatches; ++m) {
      for (const auto& [half, work] : {std::pair(Half::FORWARD, StageWork::FORWARD),
                                       {Half::INPUT, StageWork::BACKWARD_INPUT},
                                       {Half::WEIGHT, StageWork::BACKWARD_WEIGHT}}) {
        if (places_.count({half, stage, m}) != 0) continue;
        if (half != Half::FORWARD && !schedule_.has_backward) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", schedule_.RankOf(stage), " lacks ",
                         NameOf({work, schedule_.ChunkOf(stage), m})));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Replay::CheckOwnOrder() const {
  for (const auto& [part, place] : places_) {
    const std::optional<Part> before = OwnNeed(part);
    if (!before) continue;
    const Place& earlier = places_.at(*before);
    if (earlier.index <= place.index) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", place.rank, " has ", NameOf(schedule_.ranks[place.rank][place.index]),
                     " before ", NameOf(schedule_.ranks[place.rank][earlier.index])));
  }
  return absl::OkStatus();
}

absl::Status Replay::CheckMessages() const {
  // By kind, sender and receiver: the messages in the receiver's order, by their places at the
  // sender.
  std::map<std::tuple<Half, int, int>, std::vector<Place>> edges;
  for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
    for (const StageOp& op : schedule_.ranks[rank]) {
      const std::optional<Part> message = Message(rank, op);
      if (!message) continue;
      const Place& sent = places_.at(*message);
      std::vector<Place>& edge = edges[{message->half, sent.rank, rank}];
      if (!edge.empty() && edge.back().index > sent.index) {
        return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " receives ",
                                                       NameOf(edge.back()), " before ",
                                                       NameOf(sent), ", which is sent first"));
      }
      edge.push_back(sent);
    }
  }
  return absl::OkStatus();
}

void Replay::Play() {
  const int num_ranks = schedule_.num_ranks();
  done_.resize(static_cast<size_t>(num_ranks));
  bool moved = true;
  while (moved) {
    moved = false;
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Ops& ops = schedule_.ranks[rank];
      std::vector<TimedOp>& done = done_[rank];
      while (done.size() < ops.size()) {
        const StageOp& op = ops[done.size()];
        double begin = done.empty() ? 0 : done.back().end;
        if (const std::optional<Part> message = Message(rank, op)) {
          const auto sent = ends_.find(*message);
          if (sent == ends_.end()) break;
          begin = std::max(begin, sent->second);
        }
        const double end = begin + CostOf(op);
        done.push_back({op, begin, end});
        for (const Part& part : PartsOf(rank, op)) ends_[part] = end;
        moved = true;
      }
    }
  }
}

absl::Status Replay::CheckEnded() const {
  // The rank that each waiting rank waits for.
  std::map<int, Place> waits_for;
  for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
    if (done_[rank].size() == schedule_.ranks[rank].size()) continue;
    waits_for[rank] = places_.at(*Message(rank, schedule_.ranks[rank][done_[rank].size()]));
  }
  if (waits_for.empty()) return absl::OkStatus();
  // Every waiting rank waits for a waiting rank, so the walk ends in a circle.
  int rank = waits_for.begin()->first;
  for (size_t i = 0; i < waits_for.size(); ++i) rank = waits_for.at(rank).rank;
  std::string circle;
  const int first = rank;
  do {
    const Place& awaited = waits_for.at(rank);
    absl::StrAppend(&circle, circle.empty() ? "" : "; ", "rank ", rank, " waits before ",
                    NameOf(schedule_.ranks[rank][done_[rank].size()]), " for ", NameOf(awaited));
    rank = awaited.rank;
  } while (rank != first);
  return absl::FailedPreconditionError(absl::StrCat("deadlock: ", circle));
}

ScheduleReport Replay::Report() const {
  ScheduleReport report;
  report.ranks = done_;
  for (const std::vector<TimedOp>& ops : done_) {
    if (!ops.empty()) report.makespan = std::max(report.makespan, ops.back().end);
  }
  for (const std::vector<TimedOp>& ops : done_) {
    double busy = 0;
    int live = 0, peak = 0;
    for (const TimedOp& timed : ops) {
      busy += timed.end - timed.begin;
      if (timed.op.work == StageWork::FORWARD) peak = std::max(peak, ++live);
      if (timed.op.work == StageWork::BACKWARD || timed.op.work == StageWork::BACKWARD_WEIGHT)
        --live;
    }
    report.idle.push_back(report.makespan - busy);
    report.peak_live.push_back(static_cast<double>(peak) / schedule_.num_chunks);
  }
  return report;
}

}  // namespace

double ScheduleReport::bubble() const {
  return makespan == 0 ? 0 : *std::max_element(idle.begin(), idle.end()) / makespan;
}

absl::StatusOr<ScheduleReport> VerifySchedule(const PipelineSchedule& schedule,
                                              const StageCosts& costs) {
  return Replay(schedule, costs).Run();
}

}  // namespace tandem::parallel
