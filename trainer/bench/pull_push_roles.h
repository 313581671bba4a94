// The processes that `tandem bench pull-push` starts: a parameter server, and a client of the rows
// it times.
// Thread rule: the main thread of a process of its own.
#pragma once

#include "trainer/cli/run_options.h"

namespace tandem {
class PullPushCase;  // proto/bench.pb.h
}

namespace tandem::bench {

// Both use only the master's address, the index and the secret of `options`. Both return the
// process's exit code.
int RunPullPushServer(const PullPushCase& bench, const cli::RoleOptions& options);
int RunPullPushClient(const PullPushCase& bench, const cli::RoleOptions& options);

}  // namespace tandem::bench
