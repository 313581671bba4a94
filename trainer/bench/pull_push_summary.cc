#include "trainer/bench/pull_push_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ps/wire/wire_codec.h"
#include "trainer/bench/figures.h"
#include "trainer/bench/raw_bytes.h"
#include "trainer/report/json.h"

namespace tandem::bench {

namespace {

// One repetition of all clients.
struct Repetition {
  double seconds = 0;
  double pull_bytes = 0, push_bytes = 0;
  double pull_rate = 0, push_rate = 0;  // bytes per second while waiting for pulls or for pushes
  std::vector<double> raw_pull_rates, raw_push_rates;             // by kRawWindows
  double client_seconds = 0, pull_seconds = 0, push_seconds = 0;  // sums over all clients
};

void AddEach(const google::protobuf::RepeatedField<double>& added, std::vector<double>* sums) {
  sums->resize(static_cast<size_t>(added.size()));
  for (size_t i = 0; i < sums->size(); ++i) (*sums)[i] += added[static_cast<int>(i)];
}

Repetition Together(const std::vector<PullPushFigures>& clients, int number) {
  Repetition all;
  double begin = clients[0].repetitions(number).begin(), end = 0;
  for (const PullPushFigures& client : clients) {
    const PullPushRepetition& mine = client.repetitions(number);
    begin = std::min(begin, mine.begin());
    end = std::max(end, mine.end());
    all.pull_bytes += mine.pull_bytes();
    all.push_bytes += mine.push_bytes();
    if (mine.pull_seconds() > 0) all.pull_rate += mine.pull_bytes() / mine.pull_seconds();
    if (mine.push_seconds() > 0) all.push_rate += mine.push_bytes() / mine.push_seconds();
    AddEach(mine.raw_pull(), &all.raw_pull_rates);
    AddEach(mine.raw_push(), &all.raw_push_rates);
    all.client_seconds += mine.end() - mine.begin();
    all.pull_seconds += mine.pull_seconds();
    all.push_seconds += mine.push_seconds();
  }
  all.seconds = end - begin;
  return all;
}

}  // namespace

const char* ModeName(const PullPushCase& bench) {
  switch (bench.mode()) {
    case PullPushCase::PULL:
      return "pull";
    case PullPushCase::PUSH:
      return "push";
    case PullPushCase::POOLED:
      return "pooled";
    case PullPushCase::HYBRID:
      return "hybrid";
    case PullPushCase::HYBRID_POOLED:
      return "hybrid_pooled";
    default:
      return "pull_push";
  }
}

PullPushCase::Mode ModeOf(const std::string& name) {
  PullPushCase bench;
  for (const auto mode : {PullPushCase::PULL, PullPushCase::PUSH, PullPushCase::POOLED,
                          PullPushCase::HYBRID, PullPushCase::HYBRID_POOLED}) {
    bench.set_mode(mode);
    if (name == ModeName(bench)) return mode;
  }
  return PullPushCase::PULL_PUSH;
}

const char* PathName(const PullPushCase& bench) {
  return bench.path() == PullPushCase::SHM ? "shm" : "grpc";
}

const char* IdsName(const PullPushCase& bench) {
  return bench.ids() == PullPushCase::ZIPF ? "zipf" : "uniform";
}

PullPushSummary Summarise(const PullPushCase& bench, const std::vector<PullPushFigures>& clients) {
  PullPushSummary m;
  m.bench = bench;
  std::vector<double> rows, bytes, steps, pull_ratios, push_ratios, ratios, raw, pulls, owns,
      pushes;
  const auto num_steps = static_cast<double>(clients[0].steps() * clients.size());
  std::vector<Repetition> repetitions;
  std::vector<std::vector<double>> raw_pulls, raw_pushes;
  for (int i = 0; i < static_cast<int>(bench.repetitions()); ++i) {
    repetitions.push_back(Together(clients, i));
    raw_pulls.push_back(repetitions.back().raw_pull_rates);
    raw_pushes.push_back(repetitions.back().raw_push_rates);
  }
  const std::vector<double> raw_pull_rates = RatesOfBestWindow(raw_pulls),
                            raw_push_rates = RatesOfBestWindow(raw_pushes);
  for (size_t i = 0; i < repetitions.size(); ++i) {
    const Repetition& r = repetitions[i];
    rows.push_back(static_cast<double>(clients[0].ids_per_step()) * num_steps / r.seconds);
    bytes.push_back((r.pull_bytes + r.push_bytes) / r.seconds);
    const double pulling = r.pull_bytes > 0 ? r.pull_bytes / r.pull_rate : 0,
                 pushing = r.push_bytes > 0 ? r.push_bytes / r.push_rate : 0;
    const double raw_pulling = r.pull_bytes > 0 ? r.pull_bytes / raw_pull_rates[i] : 0;
    const double raw_pushing = r.push_bytes > 0 ? r.push_bytes / raw_push_rates[i] : 0;
    pull_ratios.push_back(pulling > 0 ? raw_pulling / pulling : 0);
    push_ratios.push_back(pushing > 0 ? raw_pushing / pushing : 0);
    ratios.push_back((raw_pulling + raw_pushing) / (pulling + pushing));
    raw.push_back((r.pull_bytes + r.push_bytes) / (raw_pulling + raw_pushing));
    pulls.push_back(r.pull_seconds / num_steps);
    pushes.push_back(r.push_seconds / num_steps);
    owns.push_back((r.client_seconds - r.pull_seconds - r.push_seconds) / num_steps);
  }
  for (const PullPushFigures& client : clients) {
    steps.insert(steps.end(), client.step_seconds().begin(), client.step_seconds().end());
    if (m.wrong.empty()) m.wrong = client.wrong();
  }
  m.rows_per_second = Median(rows);
  m.bytes_per_second = Median(bytes);
  m.p50_seconds = Quantile(steps, 0.5);
  m.p99_seconds = Quantile(steps, 0.99);
  m.pull_seconds = Median(pulls);
  m.own_seconds = Median(owns);
  m.push_seconds = Median(pushes);
  m.pull_ratio = Median(pull_ratios);
  m.push_ratio = Median(push_ratios);
  m.ratio = Median(ratios);
  m.raw_bytes_per_second = Median(raw);
  return m;
}

std::string JsonObject(const PullPushSummary& m) {
  using report::NineDigits;
  const std::string path = PathName(m.bench);
  return report::JsonText(
      {{"mode", ModeName(m.bench)},
       {"clients", m.bench.clients()},
       {"servers", m.bench.servers()},
       {"threads", m.bench.threads()},
       {"permits", m.bench.permits()},
       {"rows", m.bench.rows()},
       {"dim", m.bench.dim()},
       {"batch", m.bench.batch()},
       {"ids", IdsName(m.bench)},
       {"path", path},
       {"wire", ps::NameOf(m.bench.wire())},
       {"rows_per_second", NineDigits(m.rows_per_second)},
       {"gb_per_second", NineDigits(m.bytes_per_second * 1e-9)},
       {"p50_ms", NineDigits(m.p50_seconds * 1e3)},
       {"p99_ms", NineDigits(m.p99_seconds * 1e3)},
       {"pull_ms", NineDigits(m.pull_seconds * 1e3)},
       {"own_ms", NineDigits(m.own_seconds * 1e3)},
       {"push_ms", NineDigits(m.push_seconds * 1e3)},
       {"raw_" + path + "_gb_per_second", NineDigits(m.raw_bytes_per_second * 1e-9)},
       {"ratio_to_raw_" + path, NineDigits(m.ratio)},
       {"correct", m.wrong.empty()}});
}

}  // namespace tandem::bench
