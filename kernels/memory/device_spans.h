// Spans of what a device's queue ran, on the device's own clock, beside the host's spans of a trace: a pair of events around each piece of
// work, read when all of it is over. Thread rule: the queue's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/memory/event.h"
#include "kernels/trace/trace.h"

namespace tandem {

class DeviceSpans {
 public:
  // Waits until the queue is idle: there the two clocks meet. Everything outlives the spans.
  DeviceSpans(Device device, void* queue, Tracer* tracer);
  // Waits again, and hands the spans over. Those of a device that failed are dropped.
  ~DeviceSpans();
  DeviceSpans(const DeviceSpans&) = delete;
  DeviceSpans& operator=(const DeviceSpans&) = delete;

  // A span of what is submitted from now until End with the number that this returns.
  size_t Begin(const Span& what);
  void End(size_t number);

 private:
  struct Timed {
    Span span;
    std::unique_ptr<Event> begin, end;  // end is null until End
  };
  std::unique_ptr<Event> Now() const;

  const Device device_;
  void* const queue_;
  Tracer* const tracer_;
  std::unique_ptr<Event> zero_;  // null: the device had failed by then
  int64_t zero_ns_ = 0;          // the host's clock there
  std::vector<Timed> spans_;
};

}  // namespace tandem
