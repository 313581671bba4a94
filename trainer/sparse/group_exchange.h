// The exchange of merged_client over a process group: the trainers of a host exchange the gradients
// that each of them merges. The exchange has a group of its own, so it never meets a collective of
// dense gradients in flight.
// Thread rule: that of ps::TrainerExchange.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps/caching/trainer_exchange.h"
#include "trainer/comm/process_group.h"

namespace tandem::sparse {

class GroupExchange : public ps::TrainerExchange {
 public:
  // Makes the exchange of the ranks of `trainers`. Collective over `trainers`. An exchange waits
  // twice for other ranks, each time at most `timeout`.
  // REQUIRES: the ranks are on one host.
  static absl::StatusOr<std::unique_ptr<GroupExchange>> Create(comm::ProcessGroup& trainers,
                                                               absl::Duration timeout);

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::StatusOr<ps::AllToAllBuffers> Exchange(const char* outgoing,
                                               const std::vector<size_t>& bytes) override;
  void Abort(absl::Status reason) override { group_->Abort(std::move(reason)); }

 private:
  GroupExchange(std::unique_ptr<comm::ProcessGroup> group, absl::Duration timeout)
      : group_(std::move(group)), timeout_(timeout) {}

  const std::unique_ptr<comm::ProcessGroup> group_;
  const absl::Duration timeout_;
};

}  // namespace tandem::sparse
