// A host with two tables, and calls that answer later. Several tests of the table host need both.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "ps/server/table_host.h"
#include "tests/ps/spec.h"

namespace tandem::ps {

// Collects one answer; Get waits for it.
template <class T>
class Answer {
 public:
  std::function<void(T)> Callback() {
    return [state = state_](T value) {
      EXPECT_FALSE(state->done.HasBeenNotified()) << "a callback ran twice";
      state->value = std::move(value);
      state->done.Notify();
    };
  }
  bool ready() const { return state_->done.HasBeenNotified(); }
  const T& Get() const {
    EXPECT_TRUE(state_->done.WaitForNotificationWithTimeout(absl::Seconds(20))) << "no answer";
    return state_->value;
  }

 private:
  struct State {
    absl::Notification done;
    T value = absl::UnknownError("not answered");
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};
using Status = Answer<absl::Status>;

// The parameter is the number of workers.
class HostCallsTest : public testing::TestWithParam<int> {
 protected:
  HostCallsTest() : host_(GetParam()) {}

  Status TryCreate(uint32_t num_trainers, ConsistencySpec::Mode mode, uint32_t staleness) {
    ConsistencySpec consistency;
    consistency.set_mode(mode);
    consistency.set_staleness(staleness);
    Status created;
    host_.CreateTables({MakeTableSpec(1, 4), MakeTableSpec(2, 1, SPARSE_ADAM)}, num_trainers,
                       created.Callback(), consistency);
    return created;
  }
  void Create(uint32_t num_trainers, ConsistencySpec::Mode mode = ConsistencySpec::BSP,
              uint32_t staleness = 0) {
    const Status created = TryCreate(num_trainers, mode, staleness);
    ASSERT_TRUE(created.Get().ok()) << created.Get();
  }
  Status Pull(uint64_t step, const std::vector<uint64_t>& ids, float* rows, bool create = true,
              uint32_t table = 1) {
    Status answer;
    host_.Pull(Caller{}, step, create, {{table, ids.size(), ids.data(), rows}}, answer.Callback());
    return answer;
  }
  std::vector<float> Rows(const std::vector<uint64_t>& ids) {
    std::vector<float> rows(ids.size() * 4);
    EXPECT_TRUE(Pull(0, ids, rows.data(), false).Get().ok());
    return rows;
  }
  Status Push(PushPlace place, const std::vector<uint64_t>& ids,
              const std::vector<float>& gradients, uint32_t table = 1) {
    Status answer;
    auto kept = std::make_shared<const std::vector<float>>(gradients);
    host_.Accumulate(place, {{table, ids.size(), ids.data(), kept->data()}}, kept,
                     answer.Callback());
    return answer;
  }
  static CommitArgs Args(uint64_t step, float rate = 1) {
    return {step, {{1, rate}, {2, rate}}, 1, false};
  }
  Status Commit(uint32_t trainer, uint64_t step, float rate = 1) {
    Status answer;
    host_.Commit({trainer}, Args(step, rate), answer.Callback());
    return answer;
  }
  HashResult Hash() {
    Answer<absl::StatusOr<HashResult>> answer;
    host_.Hash(answer.Callback());
    return *answer.Get();
  }
  std::map<uint32_t, ValueGuardStatistics> ValueGuards() {
    Answer<absl::StatusOr<StatisticsReply>> answer;
    host_.Statistics(answer.Callback());
    std::map<uint32_t, ValueGuardStatistics> guards;
    for (const TableStatistics& table : answer.Get()->tables())
      guards[table.number()] = GuardOf(table);
    return guards;
  }
  // Returns once all earlier work is done.
  void Settle() { Hash(); }

  TableHost host_;
  const std::vector<uint64_t> ids_ = MakeIds(1, 50);
};

}  // namespace tandem::ps
