// Two trainers that train three tables, one for each optimizer, and record every bit that they
// pull.
#pragma once

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "ps/client/clients.h"
#include "tests/ps/spec.h"

namespace tandem::ps {

inline constexpr uint32_t kTrainers = 2;

// The values that a trainer saw, for a comparison bit for bit.
struct Trace {
  std::vector<float> rows;
  std::vector<absl::uint128> norms;
  HashResult hash;
};

struct Steps {
  uint64_t first = 1, last = 1;
  bool nudged = false;  // one bit of one gradient of step 3 is flipped
};

inline std::vector<TableSpec> TrainedSpecs() {
  TableSpec adam = MakeTableSpec(3, 8, SPARSE_ADAM);
  adam.set_mode(TableSpec::DENSE_EQUIVALENT);
  return {MakeTableSpec(1, 3, SPARSE_SGD), MakeTableSpec(2, 17, SPARSE_ADAGRAD), adam};
}

inline absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

// Runs one trainer's steps: pull, make gradients of the rows, push them in two slices, ask for the
// norm, commit.
inline void Train(const Clients& client, uint32_t trainer, const Steps& steps, Trace* trace) {
  const std::vector<TableSpec> specs = TrainedSpecs();
  for (uint64_t step = steps.first; step <= steps.last; ++step) {
    std::vector<std::vector<uint64_t>> ids;
    std::vector<std::vector<float>> rows, gradients;
    std::vector<PullSegment> pulls;
    for (const TableSpec& spec : specs) {
      ids.push_back(MakeIds(step * 31 + trainer * 7 + spec.number(), 40 + 13 * spec.number()));
      rows.emplace_back(ids.back().size() * spec.dim());
    }
    for (size_t t = 0; t < 3; ++t) pulls.push_back({specs[t].number(), ids[t], rows[t].data()});
    ASSERT_TRUE(client.rows->Pull(step, true, pulls).Wait(Deadline()).ok());
    for (const auto& values : rows)
      trace->rows.insert(trace->rows.end(), values.begin(), values.end());
    std::vector<rpc::Future<rpc::Done>> pushed;
    for (uint32_t part = 0; part < 2; ++part) {
      std::vector<PushSegment> pushes;
      for (size_t t = 0; t < 3; ++t) {
        auto gradient = MakeValues(step * 101 + trainer * 11 + part, rows[t].size());
        for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += 0.5f * rows[t][i];
        if (steps.nudged && step == 3 && trainer == 1 && part == 1 && t == 2) {
          gradient[4] = std::bit_cast<float>(std::bit_cast<uint32_t>(gradient[4]) ^ (1u << 12));
        }
        gradients.push_back(std::move(gradient));
        pushes.push_back({specs[t].number(), ids[t], gradients.back().data()});
      }
      pushed.push_back(client.rows->Push(step, trainer * 2 + part, pushes));
    }
    for (const auto& push : pushed) ASSERT_TRUE(push.Wait(Deadline()).ok());
    const auto norm = client.rows->GradientNorm(step).Wait(Deadline());
    ASSERT_TRUE(norm.ok()) << norm.status();
    trace->norms.push_back(*norm);
    const CommitArgs commit{step, {{1, 0.1f}, {2, 0.05f}, {3, 0.01f}}, 0.25f, step == 4};
    const auto committed = client.rows->Commit(commit).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
  }
  const auto hash = client.tables->Hash().Wait(Deadline());
  ASSERT_TRUE(hash.ok()) << hash.status();
  trace->hash = *hash;
}

using MakeClient = std::function<ClientStack(uint32_t trainer)>;
using TrainerClients = std::vector<ClientStack>;

inline TrainerClients MakeClients(const MakeClient& make) {
  TrainerClients clients;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    clients.push_back(make(trainer));
    const absl::Status created =
        clients.back().tables->CreateTables(TrainedSpecs(), absl::Seconds(30));
    EXPECT_TRUE(created.ok()) << created;
  }
  return clients;
}

// Runs both trainers, each on a thread.
inline std::vector<Trace> TrainAll(const TrainerClients& clients, const Steps& steps) {
  std::vector<Trace> traces(kTrainers);
  std::vector<std::thread> threads;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    threads.emplace_back(
        [&, trainer] { Train(clients[trainer], trainer, steps, &traces[trainer]); });
  }
  for (auto& thread : threads) thread.join();
  return traces;
}

inline std::vector<Trace> TrainAll(const MakeClient& make, const Steps& steps) {
  return TrainAll(MakeClients(make), steps);
}

inline void ExpectSame(const std::vector<Trace>& a, const std::vector<Trace>& b) {
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    ASSERT_EQ(a[trainer].rows.size(), b[trainer].rows.size());
    EXPECT_EQ(0, std::memcmp(a[trainer].rows.data(), b[trainer].rows.data(),
                             a[trainer].rows.size() * sizeof(float)));
    EXPECT_EQ(a[trainer].norms, b[trainer].norms);
    EXPECT_EQ(a[trainer].hash.hash, b[trainer].hash.hash);
    EXPECT_EQ(a[trainer].hash.num_rows, b[trainer].hash.num_rows);
  }
}

}  // namespace tandem::ps
