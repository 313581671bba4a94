// A small job with its data in a folder of its own, run by a real binary, and checks that every
// test here makes of a run.
// Thread rule: one thread. Invariant: no process of the job outlives the object.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace tandem::cluster {

using Arguments = std::vector<std::string>;

// RECOMMENDATION: a recommender with items on servers. LANGUAGE: a model of characters with its
// tokens on servers.
// CUT: a language model of dense parameters, whose layers ranks can share.
// SERVED: a language model with all parameters on servers, in chunks. CUSTOM: the recommender of
// examples/custom_model, which only that example's program knows.
enum class SmallJobKind { RECOMMENDATION, LANGUAGE, CUT, SERVED, CUSTOM };

class SmallJob {
 public:
  explicit SmallJob(SmallJobKind kind = SmallJobKind::RECOMMENDATION,
                    std::string program = TANDEM_BINARY);
  ~SmallJob();

  // The path of `name` in the job's folder.
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string Write(const std::string& name, const std::string& content) const {
    return folder_.Write(name, content);
  }
  const std::string& job_path() const { return job_path_; }
  const std::string& log_path() const { return log_path_; }

  // Starts `tandem COMMAND JOB --set data.path=LOG --out PATH(out) ARGUMENTS` and does not wait.
  std::unique_ptr<support::Process> Start(const std::string& command, const std::string& out,
                                          const Arguments& arguments);
  // Runs `tandem launch` until it ends.
  support::Ended Launch(const std::string& out, const Arguments& arguments);
  // Runs `tandem` with a whole command line until it ends.
  support::Ended Run(const Arguments& arguments);

  // Trains and returns the run's params_hash. Fails the test if training fails or leaves anything.
  std::string HashOf(const std::string& out, const Arguments& arguments);

  // The contents of a file; "" if there is none.
  std::string Read(const std::string& name) const;
  // A field of summary.json without its quotes; "" if there is none.
  std::string Summary(const std::string& out, const std::string& field) const;
  std::vector<double> Losses(const std::string& out) const;  // one per line of metrics.jsonl
  bool HasLoggedAStep(const std::string& out) const;
  bool HasCheckpoint(const std::string& out) const;

  std::vector<support::RunningProcess> Processes() const {
    return support::ProcessesMentioning(folder_.path());
  }
  // The process of a role ("master-0", "ps-1") that `launch` started; pid 0 if the role does not
  // run.
  support::RunningProcess Role(const std::string& name) const;
  // Fails the test if a process of the job or a shared-memory file still exists after
  // `moment_seconds`.
  void ExpectNothingLeft(double moment_seconds = 0.5) const;

 private:
  const support::TempFolder folder_;
  const std::string program_;
  std::string job_path_, log_path_;
  std::vector<std::string> foreign_memory_;  // shared-memory files that were there before
};

// Returns a log of users with `length` items each, drawn from 1 .. num_items.
std::string LogText(int num_users, int num_items, int length);

}  // namespace tandem::cluster
