// The processes that `tandem bench pull-push` starts: a parameter server, and a client of the rows
// it times. They find one another through a master in the parent, like the roles of a job. A signal
// ends them at once, because they have nothing to save.
// Thread rule: the main thread of a process of its own.
#pragma once

#include "absl/time/time.h"
#include "trainer/cli/run_options.h"

namespace tandem {
class PullPushCase;  // proto/bench.pb.h
}

namespace tandem::bench {

// The longest wait of the bench: for other processes to start, to meet or to answer.
inline constexpr absl::Duration kBenchTimeout = absl::Seconds(60);

// Both use only the master's address and the index from `options`. Both return the process's exit
// code.
int RunPullPushServer(const PullPushCase& bench, const cli::RoleOptions& options);
int RunPullPushClient(const PullPushCase& bench, const cli::RoleOptions& options);

}  // namespace tandem::bench
