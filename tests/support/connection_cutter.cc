#include "tests/support/connection_cutter.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "kernels/base/random.h"
#include "tests/support/loopback.h"

namespace tandem::support {
namespace {

int Socket() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  TANDEM_CHECK_GE(socket, 0);
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

bool WriteAll(int socket, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = ::send(socket, bytes, size, MSG_NOSIGNAL);
    if (written <= 0) return false;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

ConnectionCutter::ConnectionCutter(const std::string& target, uint64_t seed, uint64_t max_bytes,
                                   int max_cuts)
    : seed_(seed),
      max_bytes_(max_bytes),
      max_cuts_(max_cuts),
      target_port_(std::atoi(target.c_str() + target.rfind(':') + 1)) {
  listener_ = Socket();
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof address;
  TANDEM_CHECK_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
  TANDEM_CHECK_EQ(::listen(listener_, 16), 0);
  TANDEM_CHECK_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
  port_ = ntohs(address.sin_port);
  TANDEM_CHECK_EQ(::pipe(stop_), 0);
  accepting_ = std::thread([this] { Accept(); });
}

ConnectionCutter::~ConnectionCutter() {
  ::close(stop_[1]);
  accepting_.join();
  ::close(stop_[0]);
  ::close(listener_);
}

std::string ConnectionCutter::address() const { return "127.0.0.1:" + std::to_string(port_); }

void ConnectionCutter::Accept() {
  std::vector<std::thread> connections;
  while (true) {
    pollfd ready[2] = {{listener_, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    ::poll(ready, 2, -1);
    if (ready[1].revents != 0) break;
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    connections.emplace_back(
        [this, client, number = connections.size()] { Serve(client, number); });
  }
  for (std::thread& connection : connections) connection.join();
}

void ConnectionCutter::Serve(int client, uint64_t number) {
  uint64_t bytes_left = 1 + Fmix64(seed_ ^ Fmix64(number + 1)) % max_bytes_;
  const int server = Socket();
  const sockaddr_in address = Loopback(target_port_);
  bool open = ::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  pollfd ready[3] = {{client, POLLIN, 0}, {server, POLLIN, 0}, {stop_[0], POLLIN, 0}};
  std::vector<char> bytes(1 << 16);
  while (open) {
    ::poll(ready, 3, -1);
    if (ready[2].revents != 0) break;
    for (int from : {0, 1}) {
      if (!open || ready[from].revents == 0) continue;
      const ssize_t received = ::recv(ready[from].fd, bytes.data(), bytes.size(), 0);
      const bool cuts = num_cuts_ < max_cuts_;
      const uint64_t passes =
          cuts ? std::min<uint64_t>(bytes_left,
                                    static_cast<uint64_t>(std::max<ssize_t>(received, 0)))
               : static_cast<uint64_t>(std::max<ssize_t>(received, 0));
      open = received > 0 && WriteAll(ready[1 - from].fd, bytes.data(), passes);
      if (!open || !cuts) continue;
      bytes_left -= passes;
      open = bytes_left > 0;
      if (!open) ++num_cuts_;
    }
  }
  ::close(client);
  ::close(server);
}

}  // namespace tandem::support
