// The exchange of client_merged over a process group: the trainers of a host hand each other the gradients that each of them merges. It has
// a group of its own, so that it meets no collective of the dense gradients under way.
// Thread rule: as ps::TrainerExchange.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ps/caching/trainer_exchange.h"
#include "trainer/comm/process_group.h"

namespace tandem::sparse {

class GroupExchange : public ps::TrainerExchange {
 public:
  // Of the ranks of `trainers`, which are on one host. Collective over it. An exchange waits for a rank no longer than `timeout`, twice.
  static absl::StatusOr<std::unique_ptr<GroupExchange>> Create(comm::ProcessGroup& trainers, absl::Duration timeout);

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  absl::StatusOr<ps::AllToAllBuffers> Exchange(const char* outgoing, const std::vector<size_t>& bytes) override;
  void Abort(absl::Status reason) override { group_->Abort(std::move(reason)); }

 private:
  GroupExchange(std::unique_ptr<comm::ProcessGroup> group, absl::Duration timeout) : group_(std::move(group)), timeout_(timeout) {}

  const std::unique_ptr<comm::ProcessGroup> group_;
  const absl::Duration timeout_;
};

}  // namespace tandem::sparse
