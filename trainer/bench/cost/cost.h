// The model of cost: how long one synchronisation of weights takes by a ring and by parameter
// servers. `tandem plan` prefers the way that the model says is cheaper, and `tandem bench sync`
// shows the model beside what it measured.
//
// n trainers and s servers synchronise B bytes of weights in f32. A step uses D bytes of rows on a
// trainer, distinct rows only, and U bytes of different rows on all trainers together; dense
// weights have D = U = B.
//
//   ring     each trainer sends and receives 2 (n - 1) / n B in 2 (n - 1) messages, adds, and
//            updates all B bytes
//   servers  each trainer pushes D and then pulls D; a server receives and then sends n D / s,
//            and updates U / s
//
// A ring sends while it receives. Pulls begin after all pushes, so a server's link is busy twice.
//
// The path of a synchronisation, if each member has a core of its own:
//
//   path = messages x latency + the slower of (bytes over the busiest link, work of moving them)
//          + work of updating
//
// Members of one machine share its cores, so no synchronisation takes less than
// (work of all members) / cores, which decides on small machines.
//
// A link carries Ethernet's, IP's and TCP's headers too: kHeaders times the bytes. Ids are left
// out, because they travel compressed.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {
class CostProfile;     // proto/bench.pb.h
class TransportCosts;  // proto/bench.pb.h
}  // namespace tandem

namespace tandem::bench {

// Bytes on an Ethernet link with packets of 1,500 bytes, per byte of a message.
inline constexpr double kHeaders = 1514.0 / 1448.0;

struct Synchronisation {
  double bytes = 0;              // B
  double bytes_per_trainer = 0;  // D
  double distinct_bytes = 0;     // U
  double row_bytes = 4096;       // of one row
  int trainers = 2, servers = 1;
};

// The machines of the members.
struct Machines {
  enum Transport { SHM, TCP, NETWORK } transport = SHM;
  // Each way, of a member's link; 0: no link limits the members.
  double bits_per_second = 0;
  double burst_bytes = 0;  // pass such a link at once
  // The cores of the machine that all members share; 0: each member has a core or more of its own.
  double cores = 0;
  double member_cores = 1;  // that share the moving and updating of one member
};

struct Cost {
  enum Limit { LATENCY, LINK, WORK, CORES };
  double seconds = 0;
  Limit limit = LATENCY;  // takes the largest part of the time
  // The parts of the path.
  double latency = 0, link = 0, moving = 0, updating = 0;
  double work_of_trainers = 0, work_of_servers = 0;  // CPU seconds, of all together
  double trainer_bytes = 0, server_bytes = 0;        // sent and received by one member
};

Cost RingCost(const Synchronisation& what, const Machines& where, const CostProfile& costs);
Cost ServerCost(const Synchronisation& what, const Machines& where, const CostProfile& costs);

// "latency", "link", "work", "cores".
std::string NameOf(Cost::Limit limit);

// The costs of the transport over which members talk.
const TransportCosts& TransportOf(const Machines& where, const CostProfile& costs);

}  // namespace tandem::bench
