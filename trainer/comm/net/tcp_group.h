// Process groups whose ranks stand on several hosts, over TCP. Each pair of ranks has a connection
// for each Channel. The group's worker moves all bytes in one loop. Every rank sums its chunk of an
// array and sends the sum to all: each rank sends and receives 2 (n - 1) / n of the array. Sums are
// in the orders of ring_order.h, so their bits are those of ThreadGroup.
// With `levels`, large arrays go through shared memory within a host, and every sum is in TREE
// order: there ANY is TREE.
// A Send is done once the system has its bytes; a large Send may wait for its Recv.
// REQUIRES: two ranks that exchange large messages do not both send first.
// Thread rule: that of ProcessGroup.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rpc/store/store.h"
#include "trainer/comm/net/endpoint.h"
#include "trainer/comm/net/exchange.h"
#include "trainer/comm/net/two_levels.h"
#include "trainer/comm/queued_group.h"

namespace tandem::comm {

struct TcpGroupOptions {
  rpc::Store* store = nullptr;         // the rendezvous; outlives the group
  std::shared_ptr<Endpoint> endpoint;  // this process's
  std::string name;                    // the group's, unique in the store
  int rank = 0;
  int size = 1;
  absl::Duration timeout = absl::Seconds(60);  // for each operation
  std::vector<std::string> names = {};         // of the ranks, in messages (RankName)
  // Makes a group of some ranks, `members` of this group, in their order. Null: over TCP again.
  std::function<absl::StatusOr<std::unique_ptr<QueuedGroup>>(
      const std::vector<int>& members, const std::string& unique_name, const std::string& name,
      int rank, absl::Time deadline)>
      make_split = nullptr;
};

class TcpGroup final : public QueuedGroup {
 public:
  // The groups for two levels (two_levels.h), or nothing.
  struct Levels {
    std::unique_ptr<ProcessGroup> within, across;
  };
  // Meets the other ranks. Collective over all `size` processes. `name` is how messages call the
  // group; empty: options.name.
  static absl::StatusOr<std::unique_ptr<QueuedGroup>> Create(const TcpGroupOptions& options,
                                                             const std::string& name,
                                                             absl::Time deadline,
                                                             Levels levels = {});
  ~TcpGroup() override;

  absl::StatusOr<std::shared_ptr<Buffer>> Allocate(size_t num_bytes) override;

 private:
  struct Links;

  TcpGroup(const TcpGroupOptions& options, const std::string& name, std::unique_ptr<Links> links,
           Levels levels);
  absl::StatusOr<std::unique_ptr<QueuedGroup>> SplitOff(int color, int key, const std::string& name,
                                                        absl::Time deadline) override;
  absl::Status Run(const Collective& collective, absl::Time deadline) override;
  void AbortPeers(const absl::Status& reason) override;

  absl::Status RunTogether(const Collective& launched, absl::Time deadline);
  absl::Status RunMessage(const Collective& mine, absl::Time deadline);
  // Runs the exchange, and names who is missing or gone.
  absl::Status Finish(Exchange& exchange, absl::Time deadline);
  // The error at the deadline of a collective in two levels.
  absl::Status NameAbsent() const;

  const TcpGroupOptions options_;
  const std::unique_ptr<Links> links_;
  std::unique_ptr<TwoLevels> two_levels_;  // null: every two ranks exchange all
  int num_splits_ = 0;                     // launching thread
};

}  // namespace tandem::comm
