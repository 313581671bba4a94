#include "trainer/bench/pull_push_roles.h"

#include "kernels/base/status_macros.h"
#include "trainer/bench/members/members.h"
#include "trainer/bench/pull_push_client.h"
#include "trainer/bench/raw_bytes.h"

namespace tandem::bench {

int RunPullPushServer(const PullPushCase& bench, const cli::RoleOptions& options) {
  RawBytesService raw;
  return RunBenchServer(options, {.threads = bench.threads(),
                                  .shared_memory = bench.path() == PullPushCase::SHM,
                                  .more = [&raw](rpc::Server& server) { raw.Register(server); }});
}

int RunPullPushClient(const PullPushCase& bench, const cli::RoleOptions& options) {
  return RunBenchTrainer(
      options, [&bench](rpc::MasterClient& master) -> absl::StatusOr<MemberReport> {
        MemberReport report;
        ASSIGN_OR_RETURN(*report.mutable_pull_push(), PullPushClient(bench, master).Run());
        return report;
      });
}

}  // namespace tandem::bench
