// What the files of a job hold, and the task over them. Read once per process; shared by its replicas.
// Thread rule: constant after reading; any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "trainer/loop/task.h"

namespace tandem::loop {

// What an untrained or an ideal model scores: a column beside a run's own figures.
struct ReferenceColumn {
  std::string name;                       // "popularity", "best reachable"
  std::map<std::string, double> metrics;  // "hr@10"
};

class JobData {
 public:
  virtual ~JobData() = default;
  // In words: "4,000 users, 1,000 items, 79,712 interactions".
  virtual std::string Description() const = 0;
  // The symbols of a text's vocabulary, in order, as UTF-8; empty where there is none.
  virtual std::string Symbols() const { return ""; }
  // Places of the embedding table that are used: 1 .. the catalogue's size, or all symbols.
  virtual int64_t num_embeddings() const = 0;
  virtual std::unique_ptr<Task> MakeTask(const Job& job, const TaskEnvironment& environment) const = 0;
  // Takes a moment: counts over the whole data.
  virtual std::vector<ReferenceColumn> References() const = 0;
};

absl::StatusOr<std::unique_ptr<JobData>> ReadJobData(const Job& job);

}  // namespace tandem::loop
