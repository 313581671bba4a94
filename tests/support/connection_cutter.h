// A bad cable: forwards the bytes of TCP connections and cuts each after a seeded number of bytes,
// in either direction.
// So a cut may fall inside any message. After `max_cuts` cuts everything passes, so that clients
// that retry get through.
// Thread rule: any thread; each connection has a thread of its own. The destructor closes all
// connections.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace tandem::support {

class ConnectionCutter {
 public:
  // `target`: 127.0.0.1:port. Cuts a connection after 1 to `max_bytes` bytes, until `max_cuts` cuts
  // were made.
  ConnectionCutter(const std::string& target, uint64_t seed, uint64_t max_bytes, int max_cuts);
  ~ConnectionCutter();
  ConnectionCutter(const ConnectionCutter&) = delete;
  ConnectionCutter& operator=(const ConnectionCutter&) = delete;

  std::string address() const;
  int num_cuts() const { return num_cuts_; }

 private:
  void Accept();
  void Serve(int client, uint64_t number);

  const uint64_t seed_, max_bytes_;
  const int max_cuts_;
  int target_port_ = 0, port_ = 0;
  int listener_ = -1;
  int stop_[2] = {-1, -1};  // a pipe: its end wakes every thread
  std::atomic<int> num_cuts_{0};
  std::thread accepting_;
};

}  // namespace tandem::support
