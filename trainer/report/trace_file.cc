#include "trainer/report/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/checked_file.h"
#include "kernels/base/status_macros.h"
#include "proto/trace.pb.h"
#include "trainer/report/json.h"

namespace tandem::report {

namespace {

using nlohmann::ordered_json;

// Spans that are disjoint or nested, ordered by their beginning, outer spans first.
struct Row {
  std::string name;
  std::vector<const RecordedSpan*> spans;
};

int64_t EndOf(const RecordedSpan& span) { return span.begin_ns() + span.duration_ns(); }

std::string_view NameAt(const RoleTrace& trace, uint32_t place) {
  return place < static_cast<uint32_t>(trace.names_size())
             ? std::string_view(trace.names(static_cast<int>(place)))
             : "?";
}

// Orders master, parameter servers, trainers; each kind by rank.
std::tuple<int, int, std::string> OrderOf(const RoleTrace& trace) {
  const std::string& role = trace.role();
  int kind = 0, rank = 0;
  for (const char* prefix : {"master", "ps-", "trainer-"}) {
    if (absl::StartsWith(role, prefix)) break;
    ++kind;
  }
  if (const size_t dash = role.rfind('-'); dash != std::string::npos)
    (void)absl::SimpleAtoi(role.substr(dash + 1), &rank);
  return {kind, rank, role};
}

std::vector<const RecordedSpan*> Sorted(const RoleTrace& trace) {
  std::vector<const RecordedSpan*> spans;
  for (const RecordedSpan& span : trace.spans()) spans.push_back(&span);
  std::stable_sort(spans.begin(), spans.end(), [](const RecordedSpan* a, const RecordedSpan* b) {
    return std::make_pair(a->begin_ns(), -a->duration_ns()) <
           std::make_pair(b->begin_ns(), -b->duration_ns());
  });
  return spans;
}

// Threads in the order of their numbers, then overlapping calls by kind. Each call goes to the
// first free row.
std::vector<Row> RowsOf(const RoleTrace& trace) {
  std::map<uint32_t, Row> threads;
  for (const TraceThread& thread : trace.threads()) threads[thread.number()].name = thread.name();
  std::map<std::string_view, std::vector<Row>> calls;
  for (const RecordedSpan* span : Sorted(trace)) {
    if (span->thread() != 0) {
      threads[span->thread()].spans.push_back(span);
      continue;
    }
    const std::string_view kind = NameAt(trace, span->kind());
    std::vector<Row>& rows = calls[kind];
    auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) {
      return EndOf(*r.spans.back()) <= span->begin_ns();
    });
    if (row == rows.end()) {
      const std::string name(kind == "other" ? "call" : kind);
      row = rows.insert(row, {rows.empty() ? name : absl::StrCat(name, " ", rows.size() + 1), {}});
    }
    row->spans.push_back(span);
  }
  std::vector<Row> all;
  for (auto& [number, row] : threads) {
    if (row.spans.empty()) continue;
    if (row.name.empty()) row.name = absl::StrCat("thread ", number);
    all.push_back(std::move(row));
  }
  for (auto& [kind, rows] : calls) std::move(rows.begin(), rows.end(), std::back_inserter(all));
  return all;
}

class Writer {
 public:
  Writer(const std::string& path, int64_t zero_ns) : file_(path), zero_ns_(zero_ns) {
    Put("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  }

  void Role(int pid, const RoleTrace& trace) {
    Meta("process_name", pid, 0, {{"name", trace.role()}});
    Meta("process_sort_index", pid, 0, {{"sort_index", pid}});
    if (trace.num_dropped() > 0) {
      Meta("process_labels", pid, 0,
           {{"labels", absl::StrCat(trace.num_dropped(), " spans found no room")}});
    }
    int tid = 0;
    for (const Row& row : RowsOf(trace)) {
      Meta("thread_name", pid, ++tid, {{"name", row.name}});
      Meta("thread_sort_index", pid, tid, {{"sort_index", tid}});
      for (const RecordedSpan* span : row.spans) {
        SpanEvent(pid, tid, trace, *span);
        if (span->trace_id() == 0) continue;
        if (absl::StartsWith(trace.role(), "trainer-"))
          callers_.insert({span->trace_id(), {pid, tid, span->begin_ns()}});
        else
          served_.push_back({span->trace_id(), {pid, tid, span->begin_ns()}});
      }
    }
  }

  absl::Status Finish() {
    for (const auto& [trace_id, served] : served_) {
      const auto caller = callers_.find(trace_id);
      if (caller == callers_.end()) continue;
      ++num_arrows_;
      ArrowEnd("s", caller->second);
      ArrowEnd("f", served);
    }
    Put("\n]}\n");
    return file_.Finish().status();
  }

 private:
  struct Place {
    int pid, tid;
    int64_t begin_ns;
  };

  void Put(const std::string& text) { file_.Append(text.data(), text.size()); }
  void Event(const ordered_json& event) {
    Put(first_ ? "\n" : ",\n");
    Put(JsonText(event));
    first_ = false;
  }
  static double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

  void Meta(const char* name, int pid, int tid, ordered_json args) {
    Event({{"ph", "M"}, {"name", name}, {"pid", pid}, {"tid", tid}, {"args", std::move(args)}});
  }

  void SpanEvent(int pid, int tid, const RoleTrace& trace, const RecordedSpan& span) {
    ordered_json args = ordered_json::object();
    const double ns = static_cast<double>(std::max<int64_t>(1, span.duration_ns()));
    if (span.step() != 0) args["step"] = span.step();
    if (span.bytes() != 0) {
      args["bytes"] = NineDigits(span.bytes());
      args["GB/s"] = NineDigits(span.bytes() / ns);
    }
    if (span.flops() != 0) {
      args["flops"] = NineDigits(span.flops());
      args["GFLOP/s"] = NineDigits(span.flops() / ns);
    }
    if (span.trace_id() != 0) args["trace_id"] = absl::StrFormat("%x", span.trace_id());
    Event({{"ph", "X"},
           {"name", NameAt(trace, span.name())},
           {"cat", NameAt(trace, span.kind())},
           {"pid", pid},
           {"tid", tid},
           {"ts", Microseconds(span.begin_ns() - zero_ns_)},
           {"dur", Microseconds(span.duration_ns())},
           {"args", std::move(args)}});
  }

  // `phase` is "s" at the caller and "f" at the server.
  void ArrowEnd(const char* phase, const Place& place) {
    ordered_json event{{"ph", phase}};
    if (phase == std::string_view("f")) event["bp"] = "e";
    event.update({{"name", "call"},
                  {"cat", "call"},
                  {"id", num_arrows_},
                  {"pid", place.pid},
                  {"tid", place.tid},
                  {"ts", Microseconds(place.begin_ns - zero_ns_)}});
    Event(event);
  }

  FileWriter file_;
  const int64_t zero_ns_;
  bool first_ = true;
  int64_t num_arrows_ = 0;
  std::map<uint64_t, Place> callers_;
  std::vector<std::pair<uint64_t, Place>> served_;
};

}  // namespace

absl::Status WriteTraceFile(const std::string& path, std::vector<RoleTrace> traces) {
  std::stable_sort(traces.begin(), traces.end(),
                   [](const RoleTrace& a, const RoleTrace& b) { return OrderOf(a) < OrderOf(b); });
  int64_t zero_ns = std::numeric_limits<int64_t>::max();
  for (const RoleTrace& trace : traces) {
    for (const RecordedSpan& span : trace.spans()) zero_ns = std::min(zero_ns, span.begin_ns());
  }
  const std::string draft = path + ".draft";
  Writer writer(draft, zero_ns);
  for (size_t i = 0; i < traces.size(); ++i) writer.Role(static_cast<int>(i) + 1, traces[i]);
  RETURN_IF_ERROR(writer.Finish());
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace tandem::report
