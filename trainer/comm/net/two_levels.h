// Collectives of ranks on several hosts in two levels: the ranks of a host over shared memory, and
// each rank with its counterparts on the other hosts over the network. Each host sends and receives
// 2 (hosts - 1) / hosts of an all-reduced array, however many ranks it has.
// Sums are in TREE order, because each host holds a whole subtree (ring_order.h).
// Arrays move in pieces: hosts exchange one piece while the ranks of a host add up the next.
// Thread rule: one thread; Abort from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/comm/collective.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

// Rank = host * per_host + place.
struct HostGrid {
  int hosts = 1;
  int per_host = 1;
};

// `memory`: by rank; ranks with equal numbers share memory. Empty unless every host holds a whole
// subtree, hosts are alike, and some ranks share memory.
std::optional<HostGrid> GridOf(const std::vector<int>& memory);

class TwoLevels {
 public:
  struct Watch {
    std::function<absl::Status()> said;  // what peers said meanwhile; not Ok ends the collective
    std::function<absl::Status()> late;  // at the deadline: the error that names who is missing
  };
  // `within`: the ranks of this host by place. `across`: the ranks of this place by host.
  TwoLevels(std::unique_ptr<ProcessGroup> within, std::unique_ptr<ProcessGroup> across,
            Watch watch);

  // True if two levels are faster, and right: sums of bf16 would be rounded twice.
  bool Serve(const Collective& collective) const;
  // REQUIRES: all ranks run the same collective, which Serve says is served.
  absl::Status Run(const Collective& mine, absl::Time deadline);
  void Abort(const absl::Status& reason);

 private:
  struct Stages;
  struct Call;

  absl::Status RunStages(int64_t num_pieces, const Stages& stages);
  absl::Status AllReduce(const Call& call);
  absl::Status AllGather(const Call& call);
  absl::Status ReduceScatter(const Call& call);
  absl::Status Broadcast(const Call& call);
  // Waits for a launch of `within` or `across`.
  absl::Status Await(const Work& work);

  const std::unique_ptr<ProcessGroup> within_, across_;
  const Watch watch_;
  absl::Time deadline_;  // of the collective that runs
};

}  // namespace tandem::comm
