// The processes that `tandem bench pull-push` starts: a parameter server and a client of the rows it times. They find one another
// through a master in the parent, as the roles of a job do. A signal ends them at once: they have nothing to save. Thread rule:
// the main thread of a process of its own.
#pragma once

#include "absl/time/time.h"
#include "proto/bench.pb.h"
#include "trainer/cli/run_options.h"

namespace tandem::bench {

// How long any wait of the bench may take: for others to start, to meet, to answer.
inline constexpr absl::Duration kBenchTimeout = absl::Seconds(60);

// Of `options`, the master's address and the index count. Both return the process's exit code.
int RunPullPushServer(const PullPushCase& bench, const cli::RoleOptions& options);
int RunPullPushClient(const PullPushCase& bench, const cli::RoleOptions& options);

}  // namespace tandem::bench
