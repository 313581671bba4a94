// Reads a trace.json back as a viewer would, and checks the rules that hold for every one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tandem::report {

struct TraceEvent {
  std::string phase, name, category;
  std::string role, row;  // what process and thread are called
  int64_t begin_ns = 0, end_ns = 0;
  int64_t arrow = 0;
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
};

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns the events in file order, without those that only name things.
inline std::vector<TraceEvent> ReadTraceEvents(const std::string& path) {
  google::protobuf::Struct root;
  const auto parsed = google::protobuf::util::JsonStringToMessage(ReadText(path), &root);
  EXPECT_TRUE(parsed.ok()) << parsed.ToString();
  std::map<std::pair<int, int>, std::string> names;  // a process is its thread 0
  std::vector<TraceEvent> events;
  for (const auto& value : root.fields().at("traceEvents").list_value().values()) {
    const auto& fields = value.struct_value().fields();
    const auto text = [&](const char* name) {
      return fields.count(name) != 0 ? fields.at(name).string_value() : "";
    };
    const auto number = [&](const char* name) {
      return fields.count(name) != 0 ? fields.at(name).number_value() : 0;
    };
    const int pid = static_cast<int>(number("pid")), tid = static_cast<int>(number("tid"));
    TraceEvent event;
    event.phase = text("ph");
    event.name = text("name");
    event.category = text("cat");
    const google::protobuf::Struct args =
        fields.count("args") != 0 ? fields.at("args").struct_value() : google::protobuf::Struct();
    for (const auto& [name, arg] : args.fields()) {
      if (arg.has_number_value())
        event.numbers[name] = arg.number_value();
      else
        event.texts[name] = arg.string_value();
    }
    if (event.phase == "M") {
      if (event.name == "process_name" || event.name == "thread_name")
        names[{pid, tid}] = event.texts.at("name");
      continue;
    }
    EXPECT_EQ(names.count({pid, 0}), 1u) << "process " << pid << " has no name";
    EXPECT_EQ(names.count({pid, tid}), 1u) << "thread " << tid << " has no name";
    event.role = names[{pid, 0}];
    event.row = names[{pid, tid}];
    event.begin_ns = std::llround(number("ts") * 1e3);
    event.end_ns = event.begin_ns + std::llround(number("dur") * 1e3);
    event.arrow = static_cast<int64_t>(number("id"));
    events.push_back(event);
  }
  return events;
}

inline std::vector<TraceEvent> SpansOf(const std::vector<TraceEvent>& events,
                                       const std::string& name) {
  std::vector<TraceEvent> found;
  for (const TraceEvent& event : events) {
    if (event.phase == "X" && event.name == name) found.push_back(event);
  }
  return found;
}

// Checks that spans of a row lie apart or nested, that time begins at 0, and that every arrow has
// two ends, each on a span.
inline void CheckTraceEvents(const std::vector<TraceEvent>& events) {
  std::map<std::pair<std::string, std::string>, std::vector<TraceEvent>> rows;
  std::map<int64_t, std::vector<TraceEvent>> arrows;
  int64_t first_ns = events.empty() ? 0 : events[0].begin_ns;
  for (const TraceEvent& event : events) {
    first_ns = std::min(first_ns, event.begin_ns);
    if (event.phase == "X")
      rows[{event.role, event.row}].push_back(event);
    else
      arrows[event.arrow].push_back(event);
  }
  EXPECT_EQ(first_ns, 0);
  for (auto& [row, spans] : rows) {
    std::stable_sort(spans.begin(), spans.end(), [](const TraceEvent& a, const TraceEvent& b) {
      return std::make_pair(a.begin_ns, -a.end_ns) < std::make_pair(b.begin_ns, -b.end_ns);
    });
    std::vector<TraceEvent> open;
    for (const TraceEvent& span : spans) {
      EXPECT_GE(span.end_ns, span.begin_ns);
      while (!open.empty() && open.back().end_ns <= span.begin_ns) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(span.end_ns, open.back().end_ns)
            << row.first << " " << row.second << ": " << span.name << " crosses the end of "
            << open.back().name;
      }
      open.push_back(span);
    }
  }
  for (const auto& [id, ends] : arrows) {
    ASSERT_EQ(ends.size(), 2u) << "arrow " << id;
    EXPECT_EQ(ends[0].phase + ends[1].phase, "sf");
    for (const TraceEvent& end : ends) {
      const auto& row = rows[{end.role, end.row}];
      EXPECT_TRUE(std::any_of(row.begin(), row.end(),
                              [&](const TraceEvent& span) {
                                return span.begin_ns <= end.begin_ns && end.begin_ns <= span.end_ns;
                              }))
          << "arrow " << id << " hangs in the air";
    }
  }
}

}  // namespace tandem::report
