#include "tests/ps/server/server_model.h"

#include <algorithm>
#include <cmath>

#include "ps/store/initializer.h"

namespace tandem::ps {
namespace {

constexpr auto kOk = absl::StatusCode::kOk;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr uint64_t kRemembered = 256;  // sequences that a window reaches back

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

bool Finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

void SaveHistogram(const std::map<uint64_t, uint64_t>& counts, StepHistogram* histogram) {
  for (int i = 0; i < 17; ++i) histogram->add_counts(0);
  for (const auto& [steps, count] : counts) {
    const int bucket = static_cast<int>(std::min<uint64_t>(steps, 16));
    histogram->set_counts(bucket, histogram->counts(bucket) + count);
    histogram->set_max(std::max(histogram->max(), steps));
  }
}

}  // namespace

uint32_t ModelShard(uint32_t table, uint64_t id) {
  return static_cast<uint32_t>(Mix(id ^ Mix(table)) >> 54);
}

ServerModel::ServerModel(std::vector<TableSpec> tables, uint32_t num_trainers,
                         ConsistencySpec consistency)
    : tables_(std::move(tables)), consistency_(std::move(consistency)), trainers_(num_trainers) {}

uint64_t ServerModel::slowest() const {
  uint64_t slowest = ~uint64_t{0};
  for (const Trainer& trainer : trainers_) slowest = std::min(slowest, trainer.clock);
  return slowest;
}

absl::StatusCode ServerModel::CheckStep(uint32_t trainer, uint64_t step, uint64_t ahead) const {
  if (trainer >= trainers_.size() || step == 0 || step > trainers_[trainer].clock + ahead)
    return kInvalid;
  return kOk;
}

// A restarted trainer begins anew, but not in the middle of a step.
absl::StatusCode ServerModel::Meet(const ModelCaller& caller) {
  Trainer& trainer = trainers_[caller.trainer];
  if (caller.incarnation == trainer.incarnation) return kOk;
  if (caller.incarnation < trainer.incarnation) return kRefused;
  if (!trainer.pending.empty() || trainer.asked_norm || trainer.commit.has_value()) return kRefused;
  trainer.incarnation = caller.incarnation;
  trainer.windows.clear();
  return kOk;
}

ServerModel::Row ServerModel::NewRow(const TableSpec& spec, uint64_t id) const {
  Row row{std::vector<float>(spec.dim()),
          std::vector<float>(spec.dim(), spec.initial_accumulator()), 0};
  InitializeWeights(spec.seed(), spec.init_stddev(), id, row.weights.data(), spec.dim());
  return row;
}

bool ServerModel::MayPull(const ModelPull& pull) const {
  if (pull.step == 0) return true;
  const uint64_t before = pull.step - 1, bound = consistency_.staleness();
  const uint64_t own = pull.caller.has_value() ? trainers_[pull.caller->trainer].clock : slowest();
  switch (consistency_.mode()) {
    case ConsistencySpec::BSP:
      return slowest() >= before;
    case ConsistencySpec::SSP:
      return own >= before && slowest() + bound >= before;
    case ConsistencySpec::PERMIT:
      return own + bound >= pull.step;
    default:
      return own >= before;
  }
}

void ServerModel::Pull(int call, const ModelPull& pull) {
  if (pull.caller.has_value()) {
    if (pull.caller->trainer >= trainers_.size()) return Answer(call, kInvalid);
  }
  const uint64_t own = pull.caller.has_value() ? trainers_[pull.caller->trainer].clock : slowest();
  const uint64_t open =
      consistency_.mode() == ConsistencySpec::PERMIT ? consistency_.staleness() : 1;
  if (pull.step > own + open + 1) return Answer(call, kInvalid);
  if (pull.caller.has_value()) {
    if (const auto code = Meet(*pull.caller); code != kOk) return Answer(call, code);
  }
  if (pull.step != 0 && pull.step <= own) return Answer(call, kRefused);
  parked_.emplace_back(call, pull);
  AnswerParked();
}

void ServerModel::AnswerParked() {
  for (const auto& [call, pull] : std::exchange(parked_, {})) {
    if (MayPull(pull))
      AnswerPull(call, pull);
    else
      parked_.emplace_back(call, pull);
  }
}

void ServerModel::AnswerPull(int call, const ModelPull& pull) {
  ++pulls_;
  for (const auto& segment : pull.segments) pulled_rows_ += segment.ids.size();
  if (pull.step != 0) {
    const uint64_t own =
        pull.caller.has_value() ? trainers_[pull.caller->trainer].clock : slowest();
    ++staleness_[pull.step - 1 > slowest() ? pull.step - 1 - slowest() : 0];
    ++outstanding_[pull.step > own ? pull.step - own : 0];
  }
  ModelAnswer& answer = answers_[call];
  for (const ModelIds& segment : pull.segments) {
    auto& rows = rows_[segment.table];
    for (size_t i = 0; i < segment.ids.size(); ++i) {
      const uint64_t id = segment.ids[i];
      auto found = rows.find(id);
      const bool exists = found != rows.end();
      const Row row = exists ? found->second : NewRow(Spec(segment.table), id);
      if (!segment.versions.empty()) {
        const uint64_t has = segment.versions[i], is = uint64_t{row.version} + 1;
        const bool will_do =
            has != 0 && has <= is && is - has <= segment.read_bound && (exists || !pull.create);
        answer.versions.push_back(will_do ? 0 : static_cast<uint32_t>(is));
        if (will_do) continue;
      }
      if (!exists && pull.create) rows[id] = row;
      answer.rows.insert(answer.rows.end(), row.weights.begin(), row.weights.end());
    }
  }
}

void ServerModel::Push(int call, const ModelPush& push) { Answer(call, TryPush(push)); }

absl::StatusCode ServerModel::TryPush(const ModelPush& push) {
  for (const ModelIds& segment : push.segments) {
    if (Spec(segment.table).non_finite() == TableSpec::REJECT && !Finite(segment.gradients))
      return absl::StatusCode::kOutOfRange;
  }
  const uint64_t ahead =
      consistency_.mode() == ConsistencySpec::PERMIT ? consistency_.staleness() : 1;
  if (const auto code = CheckStep(push.caller.trainer, push.step, ahead); code != kOk) return code;
  if (push.sequence == 0 || push.sequence >> 40 != 0) return kInvalid;
  if (const auto code = Meet(push.caller); code != kOk) return code;
  Trainer& trainer = trainers_[push.caller.trainer];

  std::set<uint32_t> shards, fresh;
  for (const ModelIds& segment : push.segments) {
    for (uint64_t id : segment.ids) shards.insert(ModelShard(segment.table, id));
  }
  size_t applied = 0;
  for (uint32_t shard : shards) {
    const Window& window = trainer.windows[shard];
    if (push.sequence + kRemembered <= window.highest) return kRefused;  // nobody can tell
    applied += window.applied.count(push.sequence);
  }
  const auto pending = trainer.pending.find(push.sequence);
  if (push.step <= trainer.clock) {
    if (applied != shards.size()) return kRefused;
  } else {
    if (applied != 0 || (pending != trainer.pending.end() && pending->second.step != push.step))
      return kRefused;
    for (uint32_t shard : shards) {
      if (pending == trainer.pending.end() || pending->second.shards.count(shard) == 0)
        fresh.insert(shard);
    }
  }
  if (fresh.empty()) {
    ++(shards.empty() ? pushes_ : repeated_pushes_);
    return kOk;
  }
  if (push.step == trainer.clock + 1 && (trainer.asked_norm || trainer.commit.has_value()))
    return kRefused;
  ++pushes_;
  PendingPush& known = trainer.pending[push.sequence];
  known.step = push.step;
  known.shards.insert(fresh.begin(), fresh.end());
  for (const ModelIds& segment : push.segments) {
    const size_t dim = Spec(segment.table).dim();
    for (size_t i = 0; i < segment.ids.size(); ++i) {
      if (fresh.count(ModelShard(segment.table, segment.ids[i])) == 0) continue;
      const auto first = segment.gradients.begin() + static_cast<int64_t>(i * dim);
      trainer.gradients[push.step].push_back({segment.table,
                                              segment.ids[i],
                                              {push.slice, push.caller.trainer, push.sequence},
                                              {first, first + static_cast<int64_t>(dim)}});
    }
  }
  return kOk;
}

// Sums by row, in the fixed order of slices, trainers and sequences. Leaves out gradients that are
// not finite.
std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> ServerModel::Sum(
    std::vector<Gradient> gradients) const {
  std::stable_sort(gradients.begin(), gradients.end(),
                   [](const Gradient& a, const Gradient& b) { return a.order < b.order; });
  std::map<std::pair<uint32_t, uint64_t>, std::vector<float>> sums;
  for (const Gradient& gradient : gradients) {
    if (!Finite(gradient.values)) continue;
    const auto [sum, first] = sums.try_emplace({gradient.table, gradient.id}, gradient.values);
    if (first) continue;
    for (size_t i = 0; i < gradient.values.size(); ++i) sum->second[i] += gradient.values[i];
  }
  return sums;
}

double ServerModel::SquaredNorm(const std::vector<Gradient>& gradients) const {
  double total = 0;
  for (const auto& [row, sum] : Sum(gradients)) {
    for (float value : sum) total += double{value} * value;
  }
  return total;
}

void ServerModel::Norm(int call, const ModelCaller& caller, uint64_t step) {
  if (const auto code = CheckStep(caller.trainer, step, 1); code != kOk) return Answer(call, code);
  if (const auto code = Meet(caller); code != kOk) return Answer(call, code);
  Trainer& trainer = trainers_[caller.trainer];
  if (step <= trainer.clock) return Answer(call, kRefused);
  trainer.asked_norm = true;
  if (!bsp()) {
    answers_[call].squared_norm = SquaredNorm(trainer.gradients[step]);
    return;
  }
  norms_.push_back(call);
  for (const Trainer& each : trainers_) {
    if (!each.asked_norm) return;
  }
  if (!norm_.has_value()) {
    std::vector<Gradient> all;
    for (Trainer& each : trainers_)
      all.insert(all.end(), each.gradients[step].begin(), each.gradients[step].end());
    norm_ = SquaredNorm(all);
  }
  for (int waiting : std::exchange(norms_, {})) answers_[waiting].squared_norm = *norm_;
}

void ServerModel::Commit(int call, const ModelCommit& commit) {
  if (!std::isfinite(commit.scale)) return Answer(call, kInvalid);
  for (const auto& [table, rate] : commit.rates) {
    if (table == 0 || table > tables_.size() || !std::isfinite(rate)) return Answer(call, kInvalid);
  }
  if (!commit.skip && commit.rates.size() != tables_.size()) return Answer(call, kInvalid);
  if (const auto code = CheckStep(commit.caller.trainer, commit.step, 1); code != kOk)
    return Answer(call, code);
  if (const auto code = Meet(commit.caller); code != kOk) return Answer(call, code);
  Trainer& trainer = trainers_[commit.caller.trainer];
  if (commit.step <= trainer.clock) return Answer(call, kOk);
  if (!bsp()) {
    Apply(trainer.gradients[commit.step], commit);
    Fold(trainer);
    ++applied_commits_;
    Answer(call, kOk);
    return AnswerParked();
  }
  commits_.push_back(call);
  for (const Trainer& each : trainers_) {
    if (!each.commit.has_value()) continue;
    if (each.commit->rates == commit.rates && each.commit->scale == commit.scale &&
        each.commit->skip == commit.skip)
      continue;
    for (int waiting : std::exchange(commits_, {})) Answer(waiting, kRefused);
    for (Trainer& forgotten : trainers_) forgotten.commit.reset();
    return;
  }
  trainer.commit = commit;
  std::vector<Gradient> all;
  for (Trainer& each : trainers_) {
    if (!each.commit.has_value()) return;
    all.insert(all.end(), each.gradients[commit.step].begin(), each.gradients[commit.step].end());
  }
  Apply(all, commit);
  for (Trainer& each : trainers_) Fold(each);
  ++applied_commits_;
  for (int waiting : std::exchange(commits_, {})) Answer(waiting, kOk);
  for (int waiting : std::exchange(norms_, {})) Answer(waiting, kRefused);
  norm_.reset();
  AnswerParked();
}

void ServerModel::Apply(const std::vector<Gradient>& gradients, const ModelCommit& commit) {
  if (commit.skip) return;
  for (const auto& [place, sum] : Sum(gradients)) {
    const auto& [table, id] = place;
    const TableSpec& spec = Spec(table);
    Row& row = rows_[table].try_emplace(id, NewRow(spec, id)).first->second;
    const float rate = commit.rates.at(table);
    for (size_t i = 0; i < sum.size(); ++i) {
      const float gradient = sum[i] * commit.scale;
      if (spec.optimizer() == SPARSE_SGD) {
        row.weights[i] -= rate * gradient;
      } else {
        row.accumulator[i] += gradient * gradient;
        row.weights[i] -=
            rate * gradient / (std::sqrt(row.accumulator[i]) + static_cast<float>(spec.epsilon()));
      }
    }
    ++row.version;
  }
}

// Ends the trainer's open step: the windows of its shards know the step's pushes from now on.
void ServerModel::Fold(Trainer& trainer) {
  ++trainer.clock;
  trainer.asked_norm = false;
  trainer.commit.reset();
  trainer.gradients.erase(trainer.clock);
  for (const auto& [sequence, push] : trainer.pending) {
    if (push.step != trainer.clock) continue;
    for (uint32_t shard : push.shards) {
      Window& window = trainer.windows[shard];
      if (sequence + kRemembered <= window.highest) continue;
      window.applied.insert(sequence);
      window.highest = std::max(window.highest, sequence);
    }
  }
  std::erase_if(trainer.pending,
                [&](const auto& push) { return push.second.step == trainer.clock; });
}

bool ServerModel::CanSave(uint64_t step) const {
  return std::all_of(trainers_.begin(), trainers_.end(),
                     [&](const Trainer& trainer) { return trainer.clock == step; });
}

void ServerModel::Reload() {
  for (Trainer& trainer : trainers_) {
    Trainer loaded;
    loaded.clock = trainer.clock;
    for (const auto& [shard, window] : trainer.windows) {
      if (window.highest == 0) continue;
      loaded.windows[shard] = window;
      loaded.incarnation = trainer.incarnation;
    }
    trainer = std::move(loaded);
  }
  for (auto& [table, rows] : rows_) {
    std::erase_if(rows, [](const auto& row) { return row.second.version == 0; });
  }
  parked_.clear();
  norms_.clear();
  commits_.clear();
  norm_.reset();
  pulls_ = pulled_rows_ = pushes_ = repeated_pushes_ = applied_commits_ = 0;
  staleness_.clear();
  outstanding_.clear();
}

uint64_t ServerModel::committed_rows() const {
  uint64_t count = 0;
  for (const auto& [table, rows] : rows_) {
    for (const auto& [id, row] : rows) count += row.version > 0;
  }
  return count;
}

StatisticsReply ServerModel::Statistics() const {
  StatisticsReply statistics;
  for (const TableSpec& spec : tables_) {
    const auto rows = rows_.find(spec.number());
    TableStatistics& table = *statistics.add_tables();
    table.set_name(spec.name());
    table.set_number(spec.number());
    table.set_rows(rows == rows_.end() ? 0 : rows->second.size());
  }
  statistics.set_pulls(pulls_);
  statistics.set_pulled_rows(pulled_rows_);
  statistics.set_pushes(pushes_);
  statistics.set_repeated_pushes(repeated_pushes_);
  statistics.set_commits(applied_commits_);
  SaveHistogram(staleness_, statistics.mutable_staleness());
  SaveHistogram(outstanding_, statistics.mutable_outstanding());
  for (const Trainer& trainer : trainers_) statistics.add_clocks(trainer.clock);
  return statistics;
}

}  // namespace tandem::ps
