// The group of all trainers of a job: over shared memory where they share it, over TCP between
// hosts. Trainers share memory if their hosts have one name and one of them can really open what
// another has made: two containers may have a name in common, and nothing else.
// Thread rule: that of ProcessGroup.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "rpc/store/store.h"
#include "trainer/comm/process_group.h"

namespace tandem::comm {

struct TrainersGroupOptions {
  rpc::Store* store = nullptr;  // the rendezvous; outlives the group
  std::string token;            // the job's
  std::string name;             // the group's, unique in the store
  int rank = 0;
  absl::Duration timeout = absl::Seconds(60);  // for each operation
  std::vector<std::string> hosts;              // host names, by rank
  // Where this trainer listens, if it needs to; empty: at any port of the address through which it
  // reaches `towards`.
  std::string listen = "";
  // Where others reach it, host:port (port 0: the port of `listen`). Empty: at `listen`, or where
  // `listen` stands for all addresses, at the one through which this trainer reaches `towards`.
  std::string advertise = "";
  std::string towards = "";  // host:port
};

struct TrainersGroup {
  std::unique_ptr<ProcessGroup> group;
  std::vector<int> memory;  // by rank: ranks with equal numbers share memory
};

// Groups split off are over shared memory if all their ranks share it. Errors of all of them call
// ranks by their numbers here, for example "trainer-3 (host-b)". Collective.
absl::StatusOr<TrainersGroup> MakeTrainersGroup(const TrainersGroupOptions& options,
                                                absl::Time deadline);

}  // namespace tandem::comm
