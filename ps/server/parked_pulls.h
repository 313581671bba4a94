// Pulls that wait for their step. ConsistencyController decides when a wait ends.
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ps/server/consistency_controller.h"
#include "ps/server/table_workers.h"

namespace tandem::ps {

struct ParkedPull {
  std::optional<Caller> caller;
  uint64_t step;
  TableWorkers::Shares shares;
  bool create;
  std::function<void(absl::Status)> done;
  uint64_t trace_id;
  uint64_t num_rows = 0;
};

class ParkedPulls {
 public:
  // Limit on one trainer's parked pulls. A client has at most some dozens in flight.
  static constexpr size_t kMaxOfTrainer = 1024;

  // Parks a pull. ResourceExhausted if its trainer has kMaxOfTrainer parked pulls.
  absl::Status Add(ParkedPull pull) {
    const auto waiting = std::count_if(pulls_.begin(), pulls_.end(), [&](const ParkedPull& other) {
      return TrainerOf(other) == TrainerOf(pull);
    });
    if (static_cast<size_t>(waiting) >= kMaxOfTrainer) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "pull for step ", pull.step, ": ", waiting, " pulls of ",
          pull.caller.has_value() ? absl::StrCat("trainer ", pull.caller->trainer) : "no trainer",
          " wait for their step already"));
    }
    pulls_.push_back(std::move(pull));
    return absl::OkStatus();
  }
  // Takes the pulls for which `ends_wait` is true, in the order in which they came.
  template <class EndsWait>
  std::vector<ParkedPull> Take(const EndsWait& ends_wait) {
    std::vector<ParkedPull> taken, parked;
    for (ParkedPull& pull : pulls_) (ends_wait(pull) ? taken : parked).push_back(std::move(pull));
    pulls_ = std::move(parked);
    return taken;
  }

 private:
  static std::optional<uint32_t> TrainerOf(const ParkedPull& pull) {
    return pull.caller.has_value() ? std::optional(pull.caller->trainer) : std::nullopt;
  }

  std::vector<ParkedPull> pulls_;
};

}  // namespace tandem::ps
