// Records spans of a device queue's work on the device's clock, next to the host's spans of a
// trace. Each span is a pair of events; the times are read when all work is over.
// Thread rule: the queue's thread.
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
  // Waits until the queue is idle, to match the device's clock with the host's. `queue` and
  // `tracer` outlive the spans.
  DeviceSpans(Device device, void* queue, Tracer* tracer);
  // Waits for the queue and gives the spans to the tracer. Drops the spans of a failed device.
  ~DeviceSpans();
  DeviceSpans(const DeviceSpans&) = delete;
  DeviceSpans& operator=(const DeviceSpans&) = delete;

  // Begins a span of the work submitted from now until End(the returned number).
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
  std::unique_ptr<Event> zero_;  // null if the device had already failed
  int64_t zero_ns_ = 0;          // the host's clock at zero_
  std::vector<Timed> spans_;
};

}  // namespace tandem
