// A parameter server as its .proto describes it, in maps and vectors: its answer to each call, and
// its rows afterwards.
// Written without ps/, as an independent reference. Only a row's first weights come from there.
// Rows are f32 and LAZY, optimizers SGD and Adagrad. Calls have numbers, because a later call may
// complete an earlier one.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/embedding.pb.h"

namespace tandem::ps {

// fmix64(id ^ fmix64(table)) >> 54, as proto/embedding.proto says.
uint32_t ModelShard(uint32_t table, uint64_t id);

struct ModelAnswer {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<float> rows;         // a pull's rows
  std::vector<uint32_t> versions;  // a pull's, if it asks for versions
  double squared_norm = 0;         // a gradient norm's
};

struct ModelCaller {
  uint32_t trainer = 0;
  uint32_t incarnation = 1;
};

struct ModelIds {
  uint32_t table = 0;
  std::vector<uint64_t> ids = {};
  std::vector<uint32_t> versions = {};  // a pull's: empty, or one per id
  uint32_t read_bound = 0;
  std::vector<float> gradients = {};  // a push's
};

struct ModelPull {
  std::optional<ModelCaller> caller = std::nullopt;
  uint64_t step = 0;
  bool create = false;
  std::vector<ModelIds> segments = {};
};

struct ModelPush {
  ModelCaller caller;
  uint64_t step = 0, sequence = 0;
  uint32_t slice = 0;
  std::vector<ModelIds> segments;
};

struct ModelCommit {
  ModelCaller caller;
  uint64_t step = 0;
  std::map<uint32_t, float> rates;
  float scale = 1;
  bool skip = false;
};

class ServerModel {
 public:
  ServerModel(std::vector<TableSpec> tables, uint32_t num_trainers, ConsistencySpec consistency);

  // Each function takes one call. TakeAnswers then returns the answers of all completed calls.
  void Pull(int call, const ModelPull& pull);
  void Push(int call, const ModelPush& push);
  void Norm(int call, const ModelCaller& caller, uint64_t step);
  void Commit(int call, const ModelCommit& commit);
  // Returns true if the rows after `step` may be saved now.
  bool CanSave(uint64_t step) const;
  // Becomes another server of the same job that has loaded the rows which this one saved.
  void Reload();

  std::map<int, ModelAnswer> TakeAnswers() { return std::exchange(answers_, {}); }
  uint64_t clock(uint32_t trainer) const { return trainers_[trainer].clock; }
  uint32_t num_trainers() const { return static_cast<uint32_t>(trainers_.size()); }
  const std::vector<TableSpec>& tables() const { return tables_; }
  uint64_t committed_rows() const;
  StatisticsReply Statistics() const;

 private:
  struct Row {
    std::vector<float> weights, accumulator;
    uint32_t version = 0;
  };
  struct Gradient {
    uint32_t table = 0;
    uint64_t id = 0;
    std::array<uint64_t, 3> order{};  // slice, trainer, sequence
    std::vector<float> values;
  };
  struct PendingPush {
    uint64_t step = 0;
    std::set<uint32_t> shards;
  };
  struct Window {
    uint64_t highest = 0;
    std::set<uint64_t> applied;
  };
  struct Trainer {
    uint64_t clock = 0;
    uint32_t incarnation = 0;
    bool asked_norm = false;
    std::optional<ModelCommit> commit;
    std::map<uint64_t, PendingPush> pending;              // by sequence
    std::map<uint64_t, std::vector<Gradient>> gradients;  // by step
    std::map<uint32_t, Window> windows;                   // by virtual shard
  };
  using Parked = std::pair<int, ModelPull>;

  void Answer(int call, absl::StatusCode code) { answers_[call].code = code; }
  bool bsp() const { return consistency_.mode() == ConsistencySpec::BSP; }
  uint64_t slowest() const;
  absl::StatusCode CheckStep(uint32_t trainer, uint64_t step, uint64_t ahead) const;
  absl::StatusCode Meet(const ModelCaller& caller);
  bool MayPull(const ModelPull& pull) const;
  void AnswerPull(int call, const ModelPull& pull);
  void AnswerParked();
  absl::StatusCode TryPush(const ModelPush& push);
  std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> Sum(
      std::vector<Gradient> gradients) const;
  double SquaredNorm(const std::vector<Gradient>& gradients) const;
  void Apply(const std::vector<Gradient>& gradients, const ModelCommit& commit);
  void Fold(Trainer& trainer);
  Row NewRow(const TableSpec& spec, uint64_t id) const;
  const TableSpec& Spec(uint32_t table) const { return tables_[table - 1]; }

  const std::vector<TableSpec> tables_;  // numbers 1, 2, ...
  const ConsistencySpec consistency_;
  std::vector<Trainer> trainers_;
  std::map<uint32_t, std::map<uint64_t, Row>> rows_;  // by table, id
  std::vector<Parked> parked_;
  std::vector<int> norms_, commits_;  // calls that wait for other trainers
  std::optional<double> norm_;        // the open step's norm
  std::map<int, ModelAnswer> answers_;
  uint64_t pulls_ = 0, pulled_rows_ = 0, pushes_ = 0, repeated_pushes_ = 0, applied_commits_ = 0;
  std::map<uint64_t, uint64_t> staleness_, outstanding_;
};

}  // namespace tandem::ps
