// The open step of BSP: norms and commits that wait until every trainer has made the same call.
// TableHost posts the work; the open step remembers who waits for it.
// Thread rule: one thread at a time. Callbacks are handed out, never run here.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::ps {

class OpenStep {
 public:
  using Done = std::function<void(absl::Status)>;
  using NormDone = std::function<void(absl::StatusOr<absl::uint128>)>;
  struct WaitingNorm {
    uint64_t step;
    NormDone done;
  };
  // The calls that waited for a step that ends.
  struct Ended {
    std::vector<Done> commits;
    uint64_t trace_id = 0;           // the last one given with a commit
    std::vector<WaitingNorm> norms;  // norms that were never posted
  };

  // The step's norm, once known.
  const std::optional<absl::uint128>& norm() const { return norm_; }
  void AwaitNorm(uint64_t step, NormDone done, uint64_t trace_id) {
    norms_.push_back({step, std::move(done)});
    if (trace_id != 0) norm_trace_id_ = trace_id;
  }
  // Notes that the norm is being computed. Returns the last trace_id given with a norm.
  uint64_t PostNorm() {
    norm_posted_ = true;
    return std::exchange(norm_trace_id_, 0);
  }
  // Returns who waits for the norm of `step`. `is_open`: the step is still the open one.
  std::vector<NormDone> FinishNorm(uint64_t step, absl::uint128 norm, bool is_open) {
    if (is_open) norm_ = norm;
    std::vector<NormDone> answered;
    std::vector<WaitingNorm> others;
    for (WaitingNorm& waiting : norms_) {
      if (waiting.step == step)
        answered.push_back(std::move(waiting.done));
      else
        others.push_back(std::move(waiting));
    }
    norms_ = std::move(others);
    return answered;
  }

  void AwaitCommit(Done done, uint64_t trace_id) {
    commits_.push_back(std::move(done));
    if (trace_id != 0) commit_trace_id_ = trace_id;
  }
  // Returns the waiting commits and forgets them: the trainers disagree.
  std::vector<Done> DropCommits() {
    commit_trace_id_ = 0;
    return std::exchange(commits_, {});
  }
  // Ends the step and begins the next one.
  Ended End() {
    Ended ended{std::exchange(commits_, {}), std::exchange(commit_trace_id_, 0), TakeUnposted()};
    norm_posted_ = false;
    norm_trace_id_ = 0;
    norm_.reset();
    return ended;
  }
  // Returns the norms that wait for other trainers. Posted norms are answered when they are known.
  std::vector<WaitingNorm> TakeUnposted() {
    return norm_posted_ ? std::vector<WaitingNorm>() : std::exchange(norms_, {});
  }

 private:
  std::vector<Done> commits_;
  std::vector<WaitingNorm> norms_;
  bool norm_posted_ = false;
  std::optional<absl::uint128> norm_;
  uint64_t norm_trace_id_ = 0, commit_trace_id_ = 0;  // the last ones given in the step
};

}  // namespace tandem::ps
