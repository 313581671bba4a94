#include "trainer/comm/net/tcp_group.h"

#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/net/tcp_pieces.h"
#include "trainer/comm/split_plan.h"

namespace tandem::comm {

namespace {

constexpr size_t kMaxReason = 4096;
// A reason follows the end of a connection within this time, if the peer gave one.
constexpr absl::Duration kReasonTime = absl::Milliseconds(300);

// Ranks that wait in vain have so much time to say that they are there.
constexpr absl::Duration kRollCallTime = absl::Seconds(1);

// Begins what ranks say on control connections: an error, or Ok for "I am here". Who hears
// that for the first time answers with the same.
struct SaidHead {
  int32_t code = 0;
  uint32_t size = 0;
};

std::string StoreKey(const TcpGroupOptions& options, int rank) {
  return absl::StrCat("comm/tcp/", options.name, "/", rank);
}

}  // namespace

// The connections, by channel and rank.
struct TcpGroup::Links {
  Links() : wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  ~Links() { close(wake); }

  const std::vector<Socket>& of(Channel channel) const {
    return sockets[static_cast<size_t>(channel)];
  }
  // Reads what peers said on their control connections. Ok if nobody aborted.
  absl::Status Said();
  void Say(const absl::Status& what);
  // Tells all ranks that this one is there, the first time.
  void SayHere();
  // The connections to wait at for what somebody says.
  std::vector<int> said_fds() const;

  std::vector<Socket> sockets[std::size(kChannels)];
  std::vector<std::string> names;  // of the ranks
  std::vector<std::string> said;   // by rank: what has arrived and is not complete
  std::vector<char> is_here;       // by rank
  bool said_here = false;
  std::vector<char> control_ended;  // by rank
  const int wake;                   // readable once this rank has aborted
};

absl::Status TcpGroup::Links::Said() {
  const std::vector<Socket>& control = of(Channel::CONTROL);
  for (size_t r = 0; r < control.size(); ++r) {
    char bytes[512];
    size_t read = 0;
    while (control[r].is_open() && !control_ended[r]) {
      read = 0;
      const Socket::Moved moved = control[r].Receive(bytes, sizeof bytes, &read);
      if (moved == Socket::Moved::CLOSED) control_ended[r] = 1;
      if (moved != Socket::Moved::SOME) break;
      if (said[r].size() < sizeof(SaidHead) + kMaxReason) said[r].append(bytes, read);
    }
    while (said[r].size() >= sizeof(SaidHead)) {
      SaidHead head;
      std::memcpy(&head, said[r].data(), sizeof head);
      const size_t size = sizeof head + std::min<size_t>(head.size, kMaxReason);
      if (said[r].size() < size) break;
      const std::string text = said[r].substr(sizeof head, size - sizeof head);
      if (head.code != 0) {
        return absl::Status(static_cast<absl::StatusCode>(head.code),
                            absl::StrCat("aborted by ", RankName(names, r), ": ", text));
      }
      said[r].erase(0, size);
      is_here[r] = 1;
      SayHere();
    }
  }
  uint64_t count = 0;
  if (read(wake, &count, sizeof count) > 0) return absl::AbortedError("this rank gave up");
  return absl::OkStatus();
}

void TcpGroup::Links::Say(const absl::Status& what) {
  std::string text(what.message().substr(0, kMaxReason));
  const SaidHead head{static_cast<int32_t>(what.code()), static_cast<uint32_t>(text.size())};
  text.insert(0, reinterpret_cast<const char*>(&head), sizeof head);
  for (const Socket& socket : of(Channel::CONTROL)) {
    size_t sent = 0;  // a short message finds room, because little else was ever sent here
    if (socket.is_open()) socket.Send(text.data(), text.size(), &sent);
  }
}

void TcpGroup::Links::SayHere() {
  if (!said_here) Say(absl::OkStatus());
  said_here = true;
}

std::vector<int> TcpGroup::Links::said_fds() const {
  std::vector<int> fds{wake};
  const std::vector<Socket>& control = of(Channel::CONTROL);
  for (size_t r = 0; r < control.size(); ++r) {
    if (control[r].is_open() && !control_ended[r]) fds.push_back(control[r].fd());
  }
  return fds;
}

absl::StatusOr<std::unique_ptr<QueuedGroup>> TcpGroup::Create(const TcpGroupOptions& options,
                                                              const std::string& name,
                                                              absl::Time deadline, Levels levels) {
  auto links = std::make_unique<Links>();
  links->names = options.names;
  links->said.resize(static_cast<size_t>(options.size));
  links->control_ended.resize(static_cast<size_t>(options.size));
  links->is_here.resize(static_cast<size_t>(options.size));
  for (std::vector<Socket>& of_channel : links->sockets)
    of_channel.resize(static_cast<size_t>(options.size));
  if (options.size > 1) {
    RETURN_IF_ERROR(
        options.store->Set(StoreKey(options, options.rank), options.endpoint->address()));
  }
  // The higher rank of each pair calls the lower one.
  for (int r = 0; r < options.rank; ++r) {
    const auto address = options.store->Get(StoreKey(options, r), deadline);
    if (absl::IsDeadlineExceeded(address.status())) {
      return absl::DeadlineExceededError(absl::StrCat(RankName(options.names, r), " of ",
                                                      options.size, " did not open group '",
                                                      options.name, "'"));
    }
    RETURN_IF_ERROR(address.status());
    for (const Channel channel : kChannels) {
      ASSIGN_OR_RETURN(
          links->sockets[static_cast<size_t>(channel)][r],
          options.endpoint->Call(*address, {options.name, options.rank, channel}, deadline));
    }
  }
  for (int r = options.rank + 1; r < options.size; ++r) {
    for (const Channel channel : kChannels) {
      ASSIGN_OR_RETURN(links->sockets[static_cast<size_t>(channel)][r],
                       options.endpoint->Take({options.name, r, channel}, deadline));
    }
  }
  return std::unique_ptr<QueuedGroup>(new TcpGroup(options, name.empty() ? options.name : name,
                                                   std::move(links), std::move(levels)));
}

TcpGroup::TcpGroup(const TcpGroupOptions& options, const std::string& name,
                   std::unique_ptr<Links> links, Levels levels)
    : QueuedGroup(name, options.rank, options.size, options.timeout),
      options_(options),
      links_(std::move(links)) {
  if (levels.within != nullptr) {
    two_levels_ = std::make_unique<TwoLevels>(
        std::move(levels.within), std::move(levels.across),
        TwoLevels::Watch{[this] { return links_->Said(); }, [this] { return NameAbsent(); }});
  }
  Open();
}

TcpGroup::~TcpGroup() { Close(); }

void TcpGroup::AbortPeers(const absl::Status& reason) {
  links_->Say(reason);
  const uint64_t one = 1;
  (void)!write(links_->wake, &one, sizeof one);
  if (two_levels_ != nullptr) two_levels_->Abort(reason);
}

absl::Status TcpGroup::Finish(Exchange& exchange, absl::Time deadline) {
  const Exchange::Watch watch{links_->said_fds(), [this] { return links_->Said(); }};
  const absl::Status status = exchange.Run(watch, deadline);
  CountTraffic(exchange.traffic());
  std::string names;
  for (const int r : exchange.unfinished())
    absl::StrAppend(&names, names.empty() ? "" : ", ", RankName(options_.names, r));
  if (names.empty()) return status;
  if (absl::IsDeadlineExceeded(status)) return TimeoutError(names);
  if (!absl::IsUnavailable(status)) return status;
  const absl::Time last = absl::Now() + kReasonTime;
  const int gone = exchange.unfinished().front();
  while (absl::Now() < last && !links_->control_ended[gone]) {
    links_->of(Channel::CONTROL)[gone].AwaitReadable(last);
    RETURN_IF_ERROR(links_->Said());
  }
  return absl::UnavailableError(
      absl::StrCat(names, " is gone: its connection ended; is that process alive?"));
}

absl::Status TcpGroup::NameAbsent() const {
  links_->SayHere();
  const absl::Time last = absl::Now() + kRollCallTime;
  std::string absent;
  do {
    absl::SleepFor(absl::Milliseconds(10));
    RETURN_IF_ERROR(links_->Said());
    absent.clear();
    for (int r = 0; r < size(); ++r) {
      if (r != rank() && !links_->is_here[r])
        absl::StrAppend(&absent, absent.empty() ? "" : ", ", RankName(options_.names, r));
    }
  } while (!absent.empty() && absl::Now() < last);
  return TimeoutError(absent.empty() ? "the last piece" : absent);
}

absl::Status TcpGroup::Run(const Collective& collective, absl::Time deadline) {
  return IsPointToPoint(collective.description.kind) ? RunMessage(collective, deadline)
                                                     : RunTogether(collective, deadline);
}

absl::Status TcpGroup::RunTogether(const Collective& launched, absl::Time deadline) {
  Collective mine = launched;
  if (two_levels_ != nullptr) mine.description.order = SumOrder::TREE;
  Exchange exchange(&links_->of(Channel::COLLECTIVES));
  TcpPieces pieces(mine, rank(), size(), &exchange);
  pieces.AddDescriptions();
  if (two_levels_ != nullptr && two_levels_->Serve(mine)) {
    // Ranks meet first, so that who is missing, or calls something else, is named by all.
    RETURN_IF_ERROR(Finish(exchange, deadline));
    return two_levels_->Run(mine, deadline);
  }
  pieces.AddOperation();
  return Finish(exchange, deadline);
}

absl::Status TcpGroup::RunMessage(const Collective& mine, absl::Time deadline) {
  const CollectiveKind kind = mine.description.kind;
  const Description sent = SendHalf(mine), received = RecvHalf(mine);
  Exchange exchange(&links_->of(Channel::MESSAGES));
  Description theirs;
  if (Sends(kind)) {
    exchange.Send(sent.root, &sent, sizeof sent);
    exchange.Send(sent.root, mine.input.data, mine.input.num_bytes());
  }
  if (Receives(kind)) {
    exchange.Receive(received.root, &theirs, sizeof theirs,
                     [&] { return CheckMessage(rank(), received, received.root, theirs); });
    exchange.Receive(received.root, mine.output.data, mine.output.num_bytes());
  }
  return Finish(exchange, deadline);
}

absl::StatusOr<std::unique_ptr<QueuedGroup>> TcpGroup::SplitOff(int color, int key,
                                                                const std::string& name,
                                                                absl::Time deadline) {
  ASSIGN_OR_RETURN(const SplitPlan plan, PlanSplit(*this, color, key, deadline));
  const std::string unique = absl::StrCat(options_.name, "/split", num_splits_++, ".", color);
  if (options_.make_split)
    return options_.make_split(plan.members, unique, name, plan.rank, deadline);
  TcpGroupOptions options = options_;
  options.name = unique;
  options.rank = plan.rank;
  options.size = plan.size;
  options.names = NamesOf(options_.names, plan.members);
  return Create(options, name, deadline);
}

absl::StatusOr<std::shared_ptr<Buffer>> TcpGroup::Allocate(size_t num_bytes) {
  RETURN_IF_ERROR(status());
  return Buffer::Allocate(num_bytes);
}

}  // namespace tandem::comm
