#include "trainer/comm/net/endpoint.h"

#include <cstring>
#include <poll.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "rpc/address.h"
#include "rpc/constant_time.h"

namespace tandem::comm {

namespace {

constexpr uint32_t kMagic = 0x474d4454, kVersion = 1;  // "TDMG"
constexpr char kWelcome = 'w';
constexpr size_t kMaxName = 1024, kMaxGuests = 256;
constexpr absl::Duration kGreetingTime = absl::Seconds(5);
constexpr int kPollMilliseconds = 20;

// The fixed part of a greeting. Token and group follow.
struct Greeting {
  uint32_t magic = kMagic, version = kVersion;
  uint32_t token_size = 0, group_size = 0;
  int32_t rank = 0;
  uint8_t channel = 0;
  char unused[3] = {};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Endpoint>> Endpoint::Open(const std::string& listen,
                                                         const std::string& advertise,
                                                         const std::string& token) {
  std::string address = advertise.empty() ? listen : advertise;
  ASSIGN_OR_RETURN(const rpc::Address reached, rpc::ParseAddress(address));
  ASSIGN_OR_RETURN(Socket socket, Socket::Listen(listen));
  if (reached.port == 0) {
    address.resize(address.rfind(':') + 1);
    absl::StrAppend(&address, socket.port());
  }
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(socket), std::move(address), token));
}

Endpoint::Endpoint(Socket listening, std::string address, std::string token)
    : listening_(std::move(listening)),
      address_(std::move(address)),
      token_(std::move(token)),
      thread_([this] { Serve(); }) {}

Endpoint::~Endpoint() {
  stopping_ = true;
  thread_.join();
}

void Endpoint::Serve() {
  std::vector<Guest> guests;
  while (!stopping_) {
    std::vector<pollfd> polled{{listening_.fd(), POLLIN, 0}};
    for (const Guest& guest : guests) polled.push_back({guest.socket.fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), kPollMilliseconds);
    std::erase_if(guests, [this](Guest& guest) { return IsDone(guest); });
    while (guests.size() < kMaxGuests) {
      Socket accepted = listening_.Accept();
      if (!accepted.is_open()) break;
      guests.push_back({std::move(accepted), "", absl::Now() + kGreetingTime});
    }
  }
}

bool Endpoint::IsDone(Guest& guest) {
  Greeting fixed;
  // Reads no byte beyond the greeting, because the group's bytes follow.
  size_t wanted = sizeof fixed;
  while (true) {
    if (guest.greeting.size() >= sizeof fixed) {
      std::memcpy(&fixed, guest.greeting.data(), sizeof fixed);
      if (fixed.magic != kMagic || fixed.version != kVersion || fixed.token_size > kMaxName ||
          fixed.group_size > kMaxName)
        return true;
      wanted = sizeof fixed + fixed.token_size + fixed.group_size;
      if (guest.greeting.size() == wanted) break;
    }
    char bytes[sizeof fixed + 2 * kMaxName];
    size_t read = 0;
    const Socket::Moved moved = guest.socket.Receive(bytes, wanted - guest.greeting.size(), &read);
    if (moved == Socket::Moved::CLOSED) return true;
    if (moved == Socket::Moved::NOTHING) return absl::Now() > guest.deadline;
    guest.greeting.append(bytes, read);
  }
  const std::string_view rest = std::string_view(guest.greeting).substr(sizeof fixed);
  if (!rpc::EqualInConstantTime(rest.substr(0, fixed.token_size), token_)) return true;
  const Caller caller{std::string(rest.substr(fixed.token_size)), fixed.rank,
                      static_cast<Channel>(fixed.channel)};
  size_t sent = 0;
  if (guest.socket.Send(&kWelcome, 1, &sent) != Socket::Moved::SOME) return true;
  absl::MutexLock lock(&mutex_);
  waiting_.insert_or_assign(caller, std::move(guest.socket));
  return true;
}

absl::StatusOr<Socket> Endpoint::Take(const Caller& caller, absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  auto here = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_.contains(caller); };
  if (!mutex_.AwaitWithDeadline(absl::Condition(&here), deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", caller.rank, " did not join group '", caller.group, "'"));
  }
  return std::move(waiting_.extract(caller).mapped());
}

absl::StatusOr<Socket> Endpoint::Call(const std::string& address, const Caller& as,
                                      absl::Time deadline) const {
  Greeting fixed;
  fixed.token_size = static_cast<uint32_t>(token_.size());
  fixed.group_size = static_cast<uint32_t>(as.group.size());
  fixed.rank = as.rank;
  fixed.channel = static_cast<uint8_t>(as.channel);
  std::string greeting(reinterpret_cast<const char*>(&fixed), sizeof fixed);
  absl::StrAppend(&greeting, token_, as.group);
  ASSIGN_OR_RETURN(Socket socket, Socket::Connect(address, deadline));
  const auto refused = [&] {
    return absl::UnavailableError(absl::StrCat(address, " refused to join group '", as.group, "'"));
  };
  for (size_t sent = 0; sent < greeting.size();) {
    const auto moved = socket.Send(greeting.data() + sent, greeting.size() - sent, &sent);
    if (moved == Socket::Moved::CLOSED) return refused();
    if (moved == Socket::Moved::NOTHING && !socket.AwaitWritable(deadline))
      return absl::DeadlineExceededError(absl::StrCat("no answer from ", address));
  }
  char answer = 0;
  for (size_t read = 0; read == 0;) {
    const auto moved = socket.Receive(&answer, 1, &read);
    if (moved == Socket::Moved::CLOSED) return refused();
    if (moved == Socket::Moved::NOTHING && !socket.AwaitReadable(deadline))
      return absl::DeadlineExceededError(absl::StrCat("no answer from ", address));
  }
  if (answer != kWelcome) return refused();
  return socket;
}

}  // namespace tandem::comm
