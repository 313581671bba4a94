// Bytes that went to other processes and came from them.
// Thread rule: a value; a TrafficCounter is counted and read by any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::rpc {

struct Traffic {
  uint64_t sent = 0, received = 0;

  Traffic& operator+=(const Traffic& other) {
    sent += other.sent;
    received += other.received;
    return *this;
  }
  Traffic operator-(const Traffic& other) const {
    return {sent - other.sent, received - other.received};
  }
};

class TrafficCounter {
 public:
  void Count(const Traffic& more) {
    sent_.fetch_add(more.sent, std::memory_order_relaxed);
    received_.fetch_add(more.received, std::memory_order_relaxed);
  }
  Traffic total() const {
    return {sent_.load(std::memory_order_relaxed), received_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<uint64_t> sent_{0}, received_{0};
};

}  // namespace tandem::rpc
