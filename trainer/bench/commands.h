// `tandem bench`: the options of its commands, and their registration with the command line. Each
// function returns the process's exit code and reports errors to the user on stderr.
// Thread rule: the main thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/bench/members/members.h"
#include "trainer/tasks/kinds/kinds.h"

namespace CLI {
class App;
}

namespace tandem::bench {

struct StepOptions {
  std::vector<std::string> presets;  // gpt, sasrec or a job file; empty: gpt and sasrec
  std::vector<int> threads;          // empty: 1 and 2
  std::vector<std::string> dtypes;   // f32, bf16; empty: both if the job supports both
  std::vector<std::string> sets;     // "path=value", set in every job
  int steps = 12;                    // timed steps
  std::string json;                  // file for the figures; empty: none
};
int BenchStep(const StepOptions& options, const tasks::Kinds& kinds);

struct StoreOptions {
  std::vector<std::string> ops;  // gather, sgd, adagrad, grow; empty: the first three
  std::vector<uint32_t> dims;    // empty: 64, 16 and 128; for grow 16
  std::vector<std::string> ids;  // uniform, zipf; empty: both
  uint64_t rows = 10'000'000;
  uint32_t batch = 4096 * 26;  // ids per call; for grow 256
  double memory_gb = 2;        // for grow: 10^9 bytes
  uint32_t repetitions = 7;
  std::string json;  // file for the figures; empty: none
};
int BenchStore(const StoreOptions& options);

struct AllReduceOptions {
  int ranks = 2;
  std::vector<std::string> backends;  // shm, tcp, gloo; empty: all that there are
  std::vector<int64_t> bytes;         // of an array; empty: 4 KB to 100 MB
  int repetitions = 7;
  std::string json;  // file for the figures; empty: none
};
int BenchAllReduce(const AllReduceOptions& options);

struct ScheduleBenchOptions {
  int stages = 4, microbatches = 8;
  int virtual_stages = 2;  // of each rank, for INTERLEAVED
  // How long a forward pass and each half of a backward pass of a microbatch take on a rank.
  int milliseconds = 20;
  int repetitions = 5;  // of which the shortest counts
  std::string json;     // file for the figures; empty: none
};
int BenchSchedule(const ScheduleBenchOptions& options);

struct PullPushOptions {
  // Some of pull_push, pooled, pull, push, hybrid, hybrid_pooled; empty: all.
  std::vector<std::string> modes;
  std::vector<uint32_t> dims;    // empty: 64, 16 and 128
  std::vector<std::string> ids;  // uniform, zipf; empty: both where both are informative
  // f32, bf16, f16, int8; empty: f32, and bf16 and int8 where informative.
  std::vector<std::string> wires;
  std::vector<std::string> paths;  // grpc, shm, all; empty: both where both are informative
  int clients = 0;                 // 0: 1 for pull and push, else 2
  int servers = 1;
  int threads = 1;  // worker threads per server
  uint64_t rows = 1'000'000;
  uint32_t batch = 4096;  // per client and step: ids for pull and push, else samples of 26 ids
  // Pull and push: steps of a client that may be in flight; other modes have 1.
  uint32_t permits = 1;
  uint32_t steps = 0;  // steps per repetition; 0: as many as take `seconds`
  double seconds = 0.6;
  uint32_t repetitions = 5;
  std::string json;  // file for the figures; empty: none
  MemberOptions member;
};
int BenchPullPush(const PullPushOptions& options);

struct SyncOptions {
  bool quick = false;              // fewer points, for shorter times
  std::vector<std::string> links;  // shm, tcp or rates ("1gbit"); empty: these and 100mbit
  std::vector<uint64_t> bytes;     // sizes of all weights; empty: all
  std::string json;                // file for the figures; empty: none
  std::string report;              // file for the page; empty: none
  MemberOptions member;
};
int BenchSync(const SyncOptions& options);

struct PlanOptions {
  std::string job_path;
  std::vector<std::string> sets;  // "path=value"
  int servers = 1, trainers = 2;
  bool measure = false;       // the costs, by probes on this machine
  std::string profile;        // file of costs; empty: none
  std::string write_profile;  // file for the costs; empty: none
  std::string link = "shm";   // LinkOf
  std::string json;           // file for the plan; empty: none
};
int PlanPlacement(const PlanOptions& options, const tasks::Kinds& kinds);

// Adds `bench` and `plan` to `app` (cli::AddCommands).
void AddBenchCommands(CLI::App& app, const tasks::Kinds& kinds, int* code);

}  // namespace tandem::bench
