#include "trainer/report/trace_file.h"

#include <cstdlib>
#include <filesystem>

#include "proto/trace.pb.h"
#include "tests/support/temp_folder.h"
#include "tests/trainer/report/trace_events.h"

namespace tandem::report {
namespace {

struct Made {
  const char* name;
  const char* kind;
  uint32_t thread;
  int64_t begin_ns, duration_ns;
  uint64_t trace_id = 0;
  double bytes = 0, flops = 0;
};

RoleTrace MakeTrace(const std::string& role, const std::vector<Made>& spans) {
  RoleTrace trace;
  trace.set_role(role);
  for (const Made& made : spans) {
    RecordedSpan* span = trace.add_spans();
    span->set_name(static_cast<uint32_t>(trace.names_size()));
    trace.add_names(made.name);
    span->set_kind(static_cast<uint32_t>(trace.names_size()));
    trace.add_names(made.kind);
    span->set_thread(made.thread);
    span->set_begin_ns(made.begin_ns);
    span->set_duration_ns(made.duration_ns);
    span->set_trace_id(made.trace_id);
    span->set_bytes(made.bytes);
    span->set_flops(made.flops);
  }
  return trace;
}

std::vector<TraceEvent> Write(const std::vector<RoleTrace>& traces,
                              const support::TempFolder& folder) {
  const absl::Status written = WriteTraceFile(folder / "trace.json", traces);
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_FALSE(std::filesystem::exists(folder / "trace.json.draft"));
  std::vector<TraceEvent> events = ReadTraceEvents(folder / "trace.json");
  CheckTraceEvents(events);
  return events;
}

TEST(TraceFileTest, ASpansTimesKindAndRatesAreShown) {
  const support::TempFolder folder;
  const auto events = Write(
      {MakeTrace("trainer-0", {{"gemm_nt", "gemm", 1, 1'000'000'007, 2'000, 0, 6'000, 500'000},
                               {"empty", "other", 1, 1'000'002'007, 0}})},
      folder);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "gemm_nt");
  EXPECT_EQ(events[0].category, "gemm");
  EXPECT_EQ(events[0].role, "trainer-0");
  EXPECT_EQ(events[0].row, "thread 1");
  EXPECT_EQ(events[0].begin_ns, 0);
  EXPECT_EQ(events[0].end_ns, 2'000);
  EXPECT_EQ(events[0].numbers,
            (std::map<std::string, double>{
                {"bytes", 6'000}, {"GB/s", 3}, {"flops", 500'000}, {"GFLOP/s", 250}}));
  EXPECT_EQ(events[1].begin_ns, 2'000);
  EXPECT_TRUE(events[1].numbers.empty());
}

TEST(TraceFileTest, RolesComeInOrderAndUnderTheirNames) {
  const support::TempFolder folder;
  std::vector<RoleTrace> traces;
  for (const char* role : {"trainer-10", "ps-0", "trainer-2", "master", "ps-11", "ps-9"}) {
    traces.push_back(MakeTrace(role, {{"span", "other", 1, 5, 5}}));
  }
  std::vector<std::string> roles;
  for (const TraceEvent& event : Write(traces, folder)) roles.push_back(event.role);
  EXPECT_EQ(roles, (std::vector<std::string>{"master", "ps-0", "ps-9", "ps-11", "trainer-2",
                                             "trainer-10"}));
}

TEST(TraceFileTest, OverlappingCallsGetRowsOfTheirOwnAndThreadsKeepTheirNesting) {
  const support::TempFolder folder;
  RoleTrace trace = MakeTrace("trainer-0", {{"inner", "gemm", 4, 10, 10},
                                            {"outer", "step", 4, 10, 90},
                                            {"pull a", "pull", 0, 0, 50},
                                            {"pull b", "pull", 0, 40, 50},
                                            {"pull c", "pull", 0, 50, 50},
                                            {"push", "push", 0, 45, 10},
                                            {"Heartbeat", "other", 0, 45, 10}});
  TraceThread* thread = trace.add_threads();
  thread->set_number(4);
  thread->set_name("loop");
  trace.set_num_dropped(7);
  const auto events = Write({trace}, folder);
  EXPECT_EQ(events[0].name, "outer")
      << "of two that begin together a viewer takes the first for the outer one";
  std::map<std::string, std::string> rows;
  for (const TraceEvent& event : events) rows[event.name] = event.row;
  EXPECT_EQ(rows, (std::map<std::string, std::string>{{"inner", "loop"},
                                                      {"outer", "loop"},
                                                      {"pull a", "pull"},
                                                      {"pull b", "pull 2"},
                                                      {"pull c", "pull"},
                                                      {"push", "push"},
                                                      {"Heartbeat", "call"}}));
  EXPECT_NE(ReadText(folder / "trace.json").find("7 spans found no room"), std::string::npos);
}

TEST(TraceFileTest, ArrowsLeadFromATrainersCallToAllThatWasDoneForIt) {
  const support::TempFolder folder;
  const auto events = Write(
      {MakeTrace("trainer-0", {{"pull", "pull", 0, 0, 100, 1}, {"push", "push", 0, 10, 5, 2}}),
       MakeTrace("trainer-1", {{"pull", "pull", 0, 0, 100, 3}}),
       MakeTrace("ps-0", {{"gather_rows", "pull", 1, 20, 10, 1},
                          {"gather_rows", "pull", 2, 25, 10, 1},
                          {"gather_rows", "pull", 1, 40, 5, 4}})},
      folder);
  std::vector<TraceEvent> ends;
  for (const TraceEvent& event : events) {
    if (event.phase != "X") ends.push_back(event);
  }
  ASSERT_EQ(ends.size(), 4u);
  for (size_t i : {0, 2}) {
    EXPECT_EQ(ends[i].role, "trainer-0");
    EXPECT_EQ(ends[i].begin_ns, 0);
    EXPECT_EQ(ends[i + 1].role, "ps-0");
    EXPECT_EQ(ends[i + 1].begin_ns, i == 0 ? 20 : 25);
  }
}

// Servers must not be able to break the reader's file.
TEST(TraceFileTest, AnyTextAndAnyNumberIsStillJson) {
  const support::TempFolder folder;
  RoleTrace trace = MakeTrace(
      "a \"role\"\\\n\x01", {{"tab\t\"quoted\"", "k\\", 1, 5, 5, 0, 1e300 * 1e300, std::nan("")}});
  trace.mutable_spans(0)->set_kind(99);
  const auto events = Write({trace}, folder);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "tab\t\"quoted\"");
  EXPECT_EQ(events[0].category, "?");
  EXPECT_EQ(events[0].role, "a \"role\"\\\n\x01");
  if (std::system("python3 --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "no python3 to parse it strictly";
  EXPECT_EQ(std::system(("python3 -c 'import json, sys; json.load(open(sys.argv[1]))' " +
                         folder / "trace.json")
                            .c_str()),
            0);
}

TEST(TraceFileTest, NoSpansMakeAnEmptyTrace) {
  const support::TempFolder folder;
  EXPECT_TRUE(Write({}, folder).empty());
  EXPECT_TRUE(Write({MakeTrace("master", {})}, folder).empty());
}

TEST(TraceFileTest, AFolderThatIsNotThereIsNamed) {
  const support::TempFolder folder;
  const absl::Status status = WriteTraceFile(folder / "missing/trace.json", {});
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(status.message().find("missing/trace.json"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tandem::report
