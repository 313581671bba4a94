#include "trainer/comm/net/trainers_group.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "rpc/address.h"
#include "rpc/resolve.h"
#include "trainer/comm/host/cpu_group.h"
#include "trainer/comm/host/shared_rendezvous.h"
#include "trainer/comm/net/tcp_group.h"

namespace tandem::comm {

namespace {

constexpr char kShares[] = "shares", kApart[] = "apart";

std::string StoreKey(const TrainersGroupOptions& options, int rank) {
  return absl::StrCat("comm/", options.name, "/memory/", rank);
}

// True if this rank can map memory together with the other ranks of its host's name.
bool SharesMemory(const TrainersGroupOptions& options, absl::Time deadline) {
  std::vector<int> here;
  for (size_t r = 0; r < options.hosts.size(); ++r) {
    if (options.hosts[r] == options.hosts[options.rank]) here.push_back(static_cast<int>(r));
  }
  if (here.size() == 1) return true;
  const auto own = std::find(here.begin(), here.end(), options.rank);
  return MapTogether({options.store, options.token, absl::StrCat(options.name, "/", here.front()),
                      static_cast<int>(own - here.begin()), static_cast<int>(here.size())},
                     /*num_bytes=*/4096, rpc::SharedMemory::Pages::AT_ONCE, deadline)
      .ok();
}

// By rank: a number that ranks with memory in common share. Collective.
absl::StatusOr<std::vector<int>> MemoryOf(const TrainersGroupOptions& options,
                                          absl::Time deadline) {
  const int size = static_cast<int>(options.hosts.size());
  RETURN_IF_ERROR(options.store->Set(StoreKey(options, options.rank),
                                     SharesMemory(options, deadline) ? kShares : kApart));
  std::map<std::string, bool> apart;  // a host where some rank could not open the memory
  for (int r = 0; r < size; ++r) {
    ASSIGN_OR_RETURN(const std::string said, options.store->Get(StoreKey(options, r), deadline));
    apart[options.hosts[r]] |= said != kShares;
  }
  std::vector<int> memory;
  for (int r = 0; r < size; ++r) {
    const auto first = std::find(options.hosts.begin(), options.hosts.end(), options.hosts[r]);
    memory.push_back(apart[options.hosts[r]] ? r : static_cast<int>(first - options.hosts.begin()));
  }
  return memory;
}

absl::StatusOr<std::shared_ptr<Endpoint>> OpenEndpoint(const TrainersGroupOptions& options) {
  std::string listen = options.listen, advertise = options.advertise;
  if (listen.empty()) {
    ASSIGN_OR_RETURN(const std::string host, rpc::HostTowards(options.towards));
    listen = absl::StrCat(host, ":0");
  } else if (advertise.empty()) {
    ASSIGN_OR_RETURN(const rpc::Address address, rpc::ParseAddress(listen));
    if (address.stands_for_all()) {
      ASSIGN_OR_RETURN(const std::string host, rpc::HostTowards(options.towards));
      advertise = absl::StrCat(host, ":0");
    }
  }
  return Endpoint::Open(listen, advertise, options.token);
}

// The ranks of a group, in order.
struct Ranks {
  std::vector<std::string> names;  // in messages
  std::vector<int> memory;

  bool in_one_memory() const {
    return std::all_of(memory.begin(), memory.end(), [&](int place) { return place == memory[0]; });
  }
};

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeWithin(const TcpGroupOptions& of,
                                                         const std::string& token, HostGrid grid,
                                                         absl::Time deadline) {
  const int host = of.rank / grid.per_host;
  CpuGroupOptions options{
      of.store,      token,     absl::StrCat(of.name, "/within", host), of.rank % grid.per_host,
      grid.per_host, of.timeout};
  for (int place = 0; place < grid.per_host; ++place)
    options.names.push_back(of.names[host * grid.per_host + place]);
  return CpuGroup::Create(options, deadline);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeAcross(const TcpGroupOptions& of, HostGrid grid,
                                                         absl::Time deadline) {
  const int place = of.rank % grid.per_host;
  TcpGroupOptions options = of;
  options.name = absl::StrCat(of.name, "/across", place);
  options.rank = of.rank / grid.per_host;
  options.size = grid.hosts;
  options.names.clear();
  for (int host = 0; host < grid.hosts; ++host)
    options.names.push_back(of.names[host * grid.per_host + place]);
  return TcpGroup::Create(options, /*name=*/"", deadline);
}

absl::StatusOr<std::unique_ptr<QueuedGroup>> Make(const TcpGroupOptions& options,
                                                  const std::string& token, const Ranks& ranks,
                                                  const std::string& name, absl::Time deadline) {
  if (ranks.in_one_memory()) {
    return CpuGroup::Create({options.store, token, options.name, options.rank, options.size,
                             options.timeout, ranks.names},
                            deadline, name);
  }
  TcpGroupOptions over_tcp = options;
  over_tcp.names = ranks.names;
  over_tcp.make_split = [options, token, ranks](
                            const std::vector<int>& members, const std::string& unique_name,
                            const std::string& split_name, int rank, absl::Time split_deadline) {
    TcpGroupOptions split = options;
    split.name = unique_name;
    split.rank = rank;
    split.size = static_cast<int>(members.size());
    Ranks of_members{NamesOf(ranks.names, members), {}};
    for (const int member : members) of_members.memory.push_back(ranks.memory[member]);
    return Make(split, token, of_members, split_name, split_deadline);
  };
  TcpGroup::Levels levels;
  if (const std::optional<HostGrid> grid = GridOf(ranks.memory)) {
    ASSIGN_OR_RETURN(levels.within, MakeWithin(over_tcp, token, *grid, deadline));
    ASSIGN_OR_RETURN(levels.across, MakeAcross(over_tcp, *grid, deadline));
  }
  return TcpGroup::Create(over_tcp, name, deadline, std::move(levels));
}

}  // namespace

absl::StatusOr<TrainersGroup> MakeTrainersGroup(const TrainersGroupOptions& options,
                                                absl::Time deadline) {
  TrainersGroup made;
  ASSIGN_OR_RETURN(made.memory, MemoryOf(options, deadline));
  TcpGroupOptions tcp{.store = options.store,
                      .endpoint = nullptr,
                      .name = options.name,
                      .rank = options.rank,
                      .size = static_cast<int>(options.hosts.size()),
                      .timeout = options.timeout};
  Ranks ranks{{}, made.memory};
  for (size_t r = 0; r < options.hosts.size(); ++r)
    ranks.names.push_back(absl::StrCat("trainer-", r, " (", options.hosts[r], ")"));
  if (!ranks.in_one_memory()) {
    ASSIGN_OR_RETURN(tcp.endpoint, OpenEndpoint(options));
  }
  ASSIGN_OR_RETURN(made.group, Make(tcp, options.token, ranks, options.name, deadline));
  return made;
}

}  // namespace tandem::comm
