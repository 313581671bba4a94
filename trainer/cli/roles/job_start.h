// The start of a job, after all members have joined and before the first step: everybody proves
// that --out is one folder for all, and becomes ready once the rows are loaded. Members meet in the
// master's store.
// Thread rule: the main thread, unless a comment says otherwise.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rpc/master/client.h"
#include "rpc/server.h"

namespace tandem::cli {

// For trainer-0: writes a file into `out`, and asks every parameter server and trainer to read the
// file and to answer with one of its own. InvalidArgument names who does not see which file.
// REQUIRES: `out` exists.
absl::Status ProveSharedFolder(rpc::MasterClient& master, const std::string& out,
                               absl::Time deadline);
// For the others. Waits for trainer-0 to ask. The result is trainer-0's to judge; an error is one
// of the store.
absl::Status AnswerSharedFolder(rpc::MasterClient& master, const std::string& out,
                                absl::Time deadline);

// For trainer-0: tells the servers that their rows are loaded, or that there will be none.
absl::Status TellLoaded(rpc::MasterClient& master);

// For a parameter server: answers for the folder and makes `server` ready once the rows are loaded,
// on a thread of its own.
class ServerStart {
 public:
  // Both outlive the object. REQUIRES: the job ends before the object does.
  ServerStart(rpc::MasterClient& master, rpc::Server& server, std::string out);
  ~ServerStart() { thread_.join(); }

 private:
  std::thread thread_;
};

// Makes `server` ready as soon as `is_ready` returns true, which is asked on a thread of its own.
class ReadyWatch {
 public:
  // REQUIRES: `server` outlives the object.
  ReadyWatch(std::function<bool()> is_ready, rpc::Server& server);
  ~ReadyWatch();

 private:
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace tandem::cli
