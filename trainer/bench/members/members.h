// The processes of one measurement with parameter servers: the command starts them, is their master
// and takes their reports. They find one another like the roles of a job. A signal ends them at
// once, because they have nothing to save.
// Thread rule: the main thread of a process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "proto/bench.pb.h"
#include "rpc/master/client.h"
#include "rpc/server.h"
#include "trainer/cli/process/supervisor.h"
#include "trainer/cli/run_options.h"

namespace tandem::bench {

// The longest wait of a bench: for other processes to start, to meet or to answer.
inline constexpr absl::Duration kBenchTimeout = absl::Seconds(60);

// For the command.
struct MembersPlan {
  std::string command;                              // "pull-push"
  const google::protobuf::Message* what = nullptr;  // the measurement, which members get as text
  uint32_t servers = 0, trainers = 1;
  double bits_per_second = 0;  // of every member's own link (JoinHub); 0: members share loopback
};
struct MembersOutcome {
  cli::Supervisor::Outcome processes;
  std::vector<MemberReport> reports;  // of all trainers, if the processes ended well
};
absl::StatusOr<MembersOutcome> RunMembers(const MembersPlan& plan);

// For a member. Reads the measurement of the plan; InvalidArgument if `text` is none.
absl::Status ParsePlan(const std::string& text, google::protobuf::Message* what);

// For a member: what the command said about its place.
struct MemberOptions {
  std::string role, what, master, secret_file;  // role: "server" or "trainer"; empty: the command
  int index = -1;
};
cli::RoleOptions RoleOf(const MemberOptions& options);

struct ServerPlan {
  int threads = 1;
  bool shared_memory = false;
  std::string host = "127.0.0.1";                    // where others reach this process
  std::function<void(rpc::Server&)> more = nullptr;  // adds handlers of the bench's own
};
// Runs a parameter server until the trainers have ended. Returns the exit code.
int RunBenchServer(const cli::RoleOptions& options, const ServerPlan& plan);
// Runs a trainer, and brings the figures that it measures to the command. Returns the exit code.
int RunBenchTrainer(const cli::RoleOptions& options,
                    const std::function<absl::StatusOr<MemberReport>(rpc::MasterClient&)>& measure);

}  // namespace tandem::bench
