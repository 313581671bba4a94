// The spans that a traced step leaves at its trainers and servers. Any other step leaves none.
#include <map>
#include <set>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "rpc/role_trace.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"

namespace tandem::ps {
namespace {

constexpr uint32_t kTrainers = 2;
constexpr size_t kIds = 30, kDim = 4;

absl::Time Deadline() { return absl::Now() + absl::Seconds(30); }

struct Key {
  std::string name, kind;
  uint64_t step;
  bool operator<(const Key& other) const {
    return std::tie(name, kind, step) < std::tie(other.name, other.kind, other.step);
  }
};
struct Found {
  std::set<uint64_t> trace_ids;
  double bytes = 0;
};
using Spans = std::map<Key, Found>;

void AddSpans(const RoleTrace& trace, Spans* spans) {
  for (const RecordedSpan& span : trace.spans()) {
    Found& found = (*spans)[{trace.names(static_cast<int>(span.name())),
                             trace.names(static_cast<int>(span.kind())), span.step()}];
    EXPECT_NE(span.trace_id(), 0u);
    EXPECT_GE(span.duration_ns(), 0);
    found.trace_ids.insert(span.trace_id());
    found.bytes += span.bytes();
  }
}

// Two trainers on two servers, or on one local host.
class TraceTest : public testing::TestWithParam<bool> {
 protected:
  TraceTest() {
    for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
      if (GetParam())
        clients_.push_back(cluster_.MakeClient(trainer, kTrainers, {absl::Seconds(30), 256}));
      else
        clients_.push_back(std::make_unique<LocalClient>(host_, trainer, kTrainers));
      EXPECT_TRUE(
          clients_.back().tables->CreateTables({MakeTableSpec(1, kDim)}, absl::Seconds(30)).ok());
      tracers_.push_back(std::make_shared<Tracer>());
    }
  }

  // One step of one trainer. With a `folder`, the trainer saves first.
  void Step(uint32_t trainer, uint64_t step, const std::string& folder) {
    const Clients& client = clients_[trainer];
    const auto ids = MakeIds(step + trainer, kIds);
    std::vector<float> rows(kIds * kDim), gradients(kIds * kDim, 1);
    ASSERT_TRUE(client.rows->Pull(step, true, {{1, ids, rows.data()}}).Wait(Deadline()).ok());
    if (!folder.empty()) {
      const auto saved = client.tables->Save(step - 1, folder, Deadline()).Wait(Deadline());
      ASSERT_TRUE(saved.ok()) << saved.status();
    }
    ASSERT_TRUE(
        client.rows->Push(step, trainer, {{1, ids, gradients.data()}}).Wait(Deadline()).ok());
    ASSERT_TRUE(client.rows->GradientNorm(step).Wait(Deadline()).ok());
    const auto committed = client.rows->Commit({step, {{1, 1.0f}}, 1, false}).Wait(Deadline());
    ASSERT_TRUE(committed.ok()) << committed.status();
  }
  void StepAll(uint64_t step, const std::string& folder = "") {
    std::vector<std::thread> threads;
    for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
      threads.emplace_back([=, this] { Step(trainer, step, trainer == 0 ? folder : ""); });
    }
    for (auto& thread : threads) thread.join();
  }
  Spans ClientSpans(uint32_t trainer) {
    Spans spans;
    AddSpans(rpc::TakeRoleTrace("", *tracers_[trainer]), &spans);
    return spans;
  }
  Spans ServerSpans() {
    Spans spans;
    const auto traces = clients_[0].tables->TakeTraces(absl::Seconds(30));
    EXPECT_TRUE(traces.ok()) << traces.status();
    roles_.clear();
    for (const RoleTrace& trace : *traces) {
      roles_.push_back(trace.role());
      AddSpans(trace, &spans);
      for (const TraceThread& thread : trace.threads())
        EXPECT_EQ(thread.name().rfind("rows ", 0), 0u) << thread.name();
    }
    return spans;
  }

  PsCluster cluster_{2, 1};
  TableHost host_{2};
  std::vector<ClientStack> clients_;
  std::vector<std::shared_ptr<Tracer>> tracers_;
  std::vector<std::string> roles_;
};

TEST_P(TraceTest, ATracedStepIsSeenOnBothSidesUnderTheSameNumbersAndOtherStepsNowhere) {
  const support::TempFolder folder;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer)
    clients_[trainer].tables->TraceSteps(tracers_[trainer], 2, 2);
  for (uint64_t step : {1, 2, 3}) StepAll(step, step == 3 ? folder.path() : "");

  const Spans served = ServerSpans();
  EXPECT_EQ(roles_, (GetParam() ? std::vector<std::string>{"ps-0", "ps-1"}
                                : std::vector<std::string>{"ps-local"}));
  std::set<uint64_t> pulls, pushes, commits, norms, all;
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer) {
    Spans called = ClientSpans(trainer);
    EXPECT_EQ(called.size(), trainer == 0 ? 5u : 4u);
    const auto take = [&](const char* name, const char* kind, double bytes,
                          std::set<uint64_t>* ids) {
      const Found& found = called[{name, kind, 2}];
      EXPECT_EQ(found.trace_ids.size(), 1u) << name;
      EXPECT_EQ(found.bytes, bytes) << name;
      ids->insert(found.trace_ids.begin(), found.trace_ids.end());
      all.insert(found.trace_ids.begin(), found.trace_ids.end());
    };
    take("pull", "pull", kIds * (8 + 4 * kDim), &pulls);
    take("push", "push", kIds * (8 + 4 * kDim), &pushes);
    take("gradient_norm", "commit", 0, &norms);
    take("commit", "commit", 0, &commits);
    if (trainer == 0) {
      std::set<uint64_t> saves;
      take("save", "checkpoint", 0, &saves);
      EXPECT_EQ(served.at({"write_rows", "checkpoint", 2}).trace_ids, saves);
    }
  }
  EXPECT_EQ(all.size(), 9u) << "two calls have the same number";

  EXPECT_EQ(served.size(), 5u);
  EXPECT_EQ(served.at({"gather_rows", "pull", 2}).trace_ids, pulls);
  EXPECT_EQ(served.at({"gather_rows", "pull", 2}).bytes, kTrainers * kIds * (8 + 4 * kDim));
  EXPECT_EQ(served.at({"accumulate", "push", 2}).trace_ids, pushes);
  EXPECT_EQ(served.at({"accumulate", "push", 2}).bytes, kTrainers * kIds * (8 + 4 * kDim));
  // Each server records these once for all trainers, under the number of one of them.
  for (const auto& [name, ids] :
       {std::make_pair("gradient_norm", norms), std::make_pair("apply_step", commits)}) {
    for (const uint64_t id : served.at({name, "commit", 2}).trace_ids)
      EXPECT_EQ(ids.count(id), 1u) << name;
  }
  EXPECT_TRUE(ServerSpans().empty()) << "taken twice";
}

TEST_P(TraceTest, NothingIsRecordedWithoutATracerAfterItIsTakenAwayAndOutsideSteps) {
  StepAll(1);
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer)
    clients_[trainer].tables->TraceSteps(tracers_[trainer], 2, 9);
  const auto ids = MakeIds(1, kIds);
  std::vector<float> rows(kIds * kDim);
  ASSERT_TRUE(clients_[0].rows->Pull(0, false, {{1, ids, rows.data()}}).Wait(Deadline()).ok())
      << "as an evaluation does";
  ASSERT_TRUE(clients_[0].tables->Hash().Wait(Deadline()).ok());
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer)
    clients_[trainer].tables->TraceSteps(nullptr, 0, 0);
  StepAll(2);
  EXPECT_TRUE(ServerSpans().empty());
  for (uint32_t trainer = 0; trainer < kTrainers; ++trainer)
    EXPECT_TRUE(ClientSpans(trainer).empty());
}

TEST_P(TraceTest, ACallThatFailsEndsItsSpan) {
  clients_[0].tables->TraceSteps(tracers_[0], 1, 2);
  const auto ids = MakeIds(1, kIds);
  std::vector<float> rows(kIds * kDim);
  const auto pull =
      clients_[0].rows->Pull(2, true, {{1, ids, rows.data()}});  // step 1 is never applied
  const auto commit = clients_[0].rows->Commit({1, {{1, 1.0f}}, 1, false});
  clients_[0].rows->Abort(absl::AbortedError("over"));
  EXPECT_FALSE(pull.Wait(Deadline()).ok());
  EXPECT_FALSE(commit.Wait(Deadline()).ok());
  const Spans spans = ClientSpans(0);
  EXPECT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans.count({"pull", "pull", 2}), 1u);
  EXPECT_EQ(spans.count({"commit", "commit", 1}), 1u);
}

INSTANTIATE_TEST_SUITE_P(Both, TraceTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Remote" : "Local"; });

TEST(TakeTracesTest, AServerThatIsGoneIsNamed) {
  PsCluster cluster(2, 1);
  const auto client = cluster.MakeClient(0, 1, {});
  cluster[1].Kill();
  const auto traces = client->TakeTraces(absl::Milliseconds(500));
  EXPECT_FALSE(traces.ok());
  EXPECT_NE(traces.status().message().find("take trace: ps-1"), absl::string_view::npos)
      << traces.status();
}

}  // namespace
}  // namespace tandem::ps
