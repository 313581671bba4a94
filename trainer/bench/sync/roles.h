// The processes that `tandem bench sync` starts for a point: parameter servers, and trainers that
// time themselves. They find one another through a master in the parent, like the roles of a job.
// Thread rule: the main thread of a process of its own.
#pragma once

#include "trainer/cli/run_options.h"

namespace tandem {
class SyncPoint;  // proto/bench.pb.h
}

namespace tandem::bench {

// Both use the master's address, the index and the secret of `options`. Both return the process's
// exit code.
int RunSyncServer(const SyncPoint& point, const cli::RoleOptions& options);
int RunSyncTrainer(const SyncPoint& point, const cli::RoleOptions& options);

}  // namespace tandem::bench
