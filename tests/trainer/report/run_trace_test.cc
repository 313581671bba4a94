// trace.json of whole runs in this process: a master, two servers and two trainers. Also covers the
// alignment of trainers' clocks.
#include "trainer/report/run_trace.h"

#include <filesystem>
#include <set>
#include <thread>

#include "ps/client/clients.h"
#include "ps/local/local_client.h"
#include "rpc/master/service.h"
#include "rpc/role_trace.h"
#include "tests/ps/cluster.h"
#include "tests/ps/spec.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/report/trace_events.h"
#include "trainer/comm/host/thread_group.h"
#include "trainer/report/gather_traces.h"
#include "trainer/report/trace_file.h"

namespace tandem::report {
namespace {

constexpr int kTrainers = 2;

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

struct Setting {
  int64_t first_step, num_steps, run_steps;
  bool local = false;
};

class RunTraceTest : public testing::Test {
 protected:
  RunTraceTest() {
    service_.RegisterHandlers(server_);
    EXPECT_TRUE(server_.Start("127.0.0.1:0").ok());
  }

  // Uses a trace as a training loop does.
  void Train(int rank, const Setting& setting, comm::ProcessGroup& group) {
    rpc::MemberSelf self;
    self.role = TRAINER;
    self.host = "here";
    self.pid = rank + 1;
    self.preferred_index = rank;
    self.address = "here:" + std::to_string(rank);
    auto master = rpc::MasterClient::Connect(server_.address(), self, nullptr);
    ASSERT_TRUE(master.ok()) << master.status();
    ps::ClientStack client;
    if (setting.local)
      client = std::make_unique<ps::LocalClient>(host_, static_cast<uint32_t>(rank), kTrainers);
    else
      client = cluster_.MakeClient(static_cast<uint32_t>(rank), kTrainers, {});
    ASSERT_TRUE(client.tables->CreateTables({ps::MakeTableSpec(1, 4)}, absl::Seconds(30)).ok());
    ThreadPool pool(1);
    Stream stream(&pool);
    std::function<absl::Status(std::vector<RoleTrace>)> write;
    if (rank == 0)
      write = [this](std::vector<RoleTrace> traces) {
        return WriteTraceFile(folder_ / "trace.json", std::move(traces));
      };
    RunTrace trace({.first_step = setting.first_step,
                    .num_steps = setting.num_steps,
                    .stream = &stream,
                    .group = &group,
                    .tables = client.tables,
                    .master = setting.local ? nullptr : master->get(),
                    .deliver = write,
                    .note = [](const std::string& lack) { ADD_FAILURE() << lack; }});
    for (int64_t step = 1; step <= setting.run_steps; ++step) {
      ASSERT_TRUE(trace.BeforeStep({.step = step}, Soon()).ok());
      const TraceSpan span(stream.tracer(), SpanKind::STEP, "step");
      TrainStep(static_cast<uint64_t>(step), *client.rows, group, stream);
    }
    EXPECT_TRUE(trace.Finish(Soon()).ok());
    EXPECT_EQ(stream.tracer(), nullptr);
    EXPECT_TRUE((*master)->Leave(absl::OkStatus()).ok());
  }
  void TrainStep(uint64_t step, ps::RowClient& client, comm::ProcessGroup& group, Stream& stream) {
    const auto ids = ps::MakeIds(step, 20);
    std::vector<float> rows(80), gradients(80, 1);
    ASSERT_TRUE(client.Pull(step, true, {{1, ids, rows.data()}}).Wait(Soon()).ok());
    { const TraceSpan kernel(stream.tracer(), SpanKind::GEMM, "gemm", 1000, 100); }
    ASSERT_TRUE(
        group.AllReduce(DenseView(rows.data(), {80}), {.stream = &stream}).Wait(Soon()).ok());
    ASSERT_TRUE(client.Push(step, 0, {{1, ids, gradients.data()}}).Wait(Soon()).ok());
    ASSERT_TRUE(client.Commit({step, {{1, 1.0f}}, 1, false}).Wait(Soon()).ok());
  }
  std::vector<TraceEvent> Run(const Setting& setting) {
    auto groups = comm::ThreadGroup::Create(kTrainers, "dp");
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kTrainers; ++rank) {
      threads.emplace_back([&, rank] { Train(rank, setting, *groups[static_cast<size_t>(rank)]); });
    }
    for (auto& thread : threads) thread.join();
    if (!std::filesystem::exists(folder_ / "trace.json")) return {};
    std::vector<TraceEvent> events = ReadTraceEvents(folder_ / "trace.json");
    CheckTraceEvents(events);
    return events;
  }
  static std::set<int> StepsOf(const std::vector<TraceEvent>& events, const std::string& name) {
    std::set<int> steps;
    for (const TraceEvent& event : SpansOf(events, name))
      steps.insert(static_cast<int>(event.numbers.at("step")));
    return steps;
  }

  const support::TempFolder folder_;
  rpc::MasterService service_{{.num_ps = 0, .num_trainers = kTrainers}, 0.02};
  rpc::Server server_;
  ps::PsCluster cluster_{2, 1};
  ps::TableHost host_{1};
};

TEST_F(RunTraceTest, EveryRolesPartOfTheTracedStepsIsThereAndNoOtherSteps) {
  const auto events = Run({.first_step = 2, .num_steps = 2, .run_steps = 6});
  for (const char* name : {"pull", "push", "commit", "gather_rows", "accumulate", "apply_step"}) {
    EXPECT_EQ(StepsOf(events, name), (std::set<int>{2, 3})) << name;
  }
  std::map<std::string, std::set<std::string>> rows;  // of each role
  for (const TraceEvent& event : events) rows[event.role].insert(event.row);
  EXPECT_EQ(rows["master"].count("call"), 1u);  // and "call 2" where two overlap
  for (const char* role : {"ps-0", "ps-1"})
    EXPECT_EQ(rows[role], (std::set<std::string>{"rows 0"})) << role;
  for (const char* role : {"trainer-0", "trainer-1"}) {
    for (const char* row : {"loop", "group dp", "pull", "push", "commit"})
      EXPECT_EQ(rows[role].count(row), 1u) << role << row;
  }
  EXPECT_EQ(SpansOf(events, "step").size(), 4u);
  EXPECT_EQ(SpansOf(events, "gemm").size(), 4u);
  EXPECT_EQ(SpansOf(events, "all_reduce").size(), 4u);
  EXPECT_GE(SpansOf(events, "Heartbeat").size(), 2u) << "one at the master and one at trainer-0";
  // Every call that reached a server has its arrow, along which time does not run backwards.
  int num_arrows = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    if (events[i].phase != "s") continue;
    ++num_arrows;
    EXPECT_LE(events[i].begin_ns, events[i + 1].begin_ns) << events[i + 1].role;
  }
  EXPECT_GE(num_arrows, 2 * kTrainers * 2 * 2);
}

TEST_F(RunTraceTest, ARunThatEndsAtOnceAfterTheTracedStepsHasItsTrace) {
  EXPECT_EQ(StepsOf(Run({.first_step = 3, .num_steps = 5, .run_steps = 4}), "apply_step"),
            (std::set<int>{3, 4}));
}

TEST_F(RunTraceTest, LocalTablesAreARoleToo) {
  const auto events = Run({.first_step = 1, .num_steps = 1, .run_steps = 3, .local = true});
  EXPECT_EQ(StepsOf(events, "gather_rows"), (std::set<int>{1}));
  for (const TraceEvent& event : SpansOf(events, "apply_step")) EXPECT_EQ(event.role, "ps-local");
  EXPECT_TRUE(SpansOf(events, "Heartbeat").empty());
}

TEST_F(RunTraceTest, WithoutTracedStepsThereIsNoFile) {
  EXPECT_TRUE(Run({.first_step = 2, .num_steps = -1, .run_steps = 4}).empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.json"));
}

TEST(RunTraceAloneTest, AMasterThatIsGoneCostsItsPartOnlyAndTheNoteSaysSo) {
  rpc::MasterService service({.num_ps = 0, .num_trainers = 1}, 0.02);
  rpc::Server server;
  service.RegisterHandlers(server);
  ASSERT_TRUE(server.Start("127.0.0.1:0").ok());
  rpc::MemberSelf self;
  self.role = TRAINER;
  self.host = "here";
  self.address = "here:0";
  const auto master = rpc::MasterClient::Connect(server.address(), self, nullptr);
  ASSERT_TRUE(master.ok()) << master.status();
  const auto groups = comm::ThreadGroup::Create(1, "dp");
  ThreadPool pool(1);
  Stream stream(&pool);
  std::vector<RoleTrace> delivered;
  std::string lack;
  RunTrace trace({.first_step = 1,
                  .num_steps = 1,
                  .stream = &stream,
                  .group = groups[0].get(),
                  .tables = nullptr,
                  .master = master->get(),
                  .deliver =
                      [&delivered](std::vector<RoleTrace> traces) {
                        delivered = std::move(traces);
                        return absl::OkStatus();
                      },
                  .note = [&lack](const std::string& text) { lack = text; }});
  ASSERT_TRUE(trace.BeforeStep({.step = 1}, Soon()).ok());
  server.Shutdown(0);
  EXPECT_TRUE(trace.Finish(absl::Now() + absl::Seconds(4)).ok()) << "the run goes on";
  ASSERT_EQ(delivered.size(), 1u);
  EXPECT_EQ(delivered[0].role(), "trainer-0");
  EXPECT_NE(lack.find("trace.json lacks the master's spans"), std::string::npos) << lack;
}

void ExpectTracesOnTheClockOfRankZero(const std::string& its_boot_id,
                                      const std::string& other_boot_id) {
  constexpr int kSize = 4;
  auto groups = comm::ThreadGroup::Create(kSize, "world");
  std::vector<std::thread> threads;
  const int64_t before = MonotonicNanoseconds();
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      comm::ProcessGroup& group = *groups[static_cast<size_t>(rank)];
      // Ranks 2 and 3 are on another machine, which booted a day earlier.
      const int64_t ahead_ns = rank >= 2 ? 86'400'000'000'000 : 0;
      const auto clock = [ahead_ns] { return MonotonicNanoseconds() + ahead_ns; };
      RoleTrace mine;
      mine.set_role("trainer-" + std::to_string(rank));
      mine.set_boot_id(rank >= 2 ? other_boot_id : its_boot_id);
      for (int i = 0; i < 1000 * rank; ++i) mine.add_names("a trace may be long");
      mine.add_spans()->set_begin_ns(clock());
      const auto traces = GatherTraces(group, mine, Soon(), clock);
      const int64_t after = MonotonicNanoseconds();
      ASSERT_TRUE(traces.ok()) << traces.status();
      ASSERT_EQ(traces->size(), rank == 0 ? kSize : 0u);
      for (int r = 0; r < static_cast<int>(traces->size()); ++r) {
        const RoleTrace& trace = (*traces)[static_cast<size_t>(r)];
        EXPECT_EQ(trace.role(), "trainer-" + std::to_string(r));
        EXPECT_EQ(trace.boot_id(), its_boot_id);
        EXPECT_EQ(trace.names_size(), 1000 * r);
        // The error is at most half of the shortest round trip, which is shorter than all calls
        // together.
        const int64_t slack = r >= 2 || its_boot_id.empty() ? after - before : 0;
        EXPECT_GE(trace.spans(0).begin_ns(), before - slack) << r;
        EXPECT_LE(trace.spans(0).begin_ns(), after + slack) << r;
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(GatherTracesTest, TracesComeInRankOrderOnTheClockOfRankZero) {
  ExpectTracesOnTheClockOfRankZero("here", "there");
}

TEST(GatherTracesTest, MachinesThatHideTheirBootIdsAreNotTakenForOne) {
  ExpectTracesOnTheClockOfRankZero("", "");
}

TEST(GatherTracesTest, OneRankGetsItsOwn) {
  const auto groups = comm::ThreadGroup::Create(1, "world");
  RoleTrace mine;
  mine.set_role("trainer-0");
  mine.add_spans()->set_begin_ns(5);
  const auto traces = GatherTraces(*groups[0], mine, Soon());
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 1u);
  EXPECT_EQ((*traces)[0].spans(0).begin_ns(), 5);
}

}  // namespace
}  // namespace tandem::report
