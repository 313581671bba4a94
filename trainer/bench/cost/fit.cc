#include "trainer/bench/cost/fit.h"

#include <algorithm>

namespace tandem::bench {

namespace {

class Fitter {
 public:
  Fitter(const std::vector<ProbeFigures>& probes, const CostProfile& typical)
      : probes_(probes), typical_(typical), profile_(typical) {}

  CostProfile Run();

 private:
  const ProbeFigures* Find(Probe probe, Machines::Transport transport) const {
    const auto found = std::find_if(probes_.begin(), probes_.end(), [&](const ProbeFigures& p) {
      return p.probe == probe && p.transport == transport;
    });
    return found == probes_.end() ? nullptr : &*found;
  }
  TransportCosts* Costs(Machines::Transport transport) {
    return transport == Machines::SHM   ? profile_.mutable_shm()
           : transport == Machines::TCP ? profile_.mutable_tcp()
                                        : profile_.mutable_network();
  }
  void FitUpdates();
  void FitRows();
  void FitTransport(Machines::Transport transport);
  void ScaleNetwork();

  const std::vector<ProbeFigures>& probes_;
  const CostProfile& typical_;
  CostProfile profile_;
};

double AtLeastZero(double value) { return std::max(0.0, value); }

// Nanoseconds a byte.
double PerByte(double seconds, double bytes) { return AtLeastZero(seconds / bytes * 1e9); }

// The servers' work on the same update grows with the bytes that trainers move.
void Fitter::FitUpdates() {
  if (const auto* const alone = Find(Probe::RING_ALONE, Machines::SHM))
    profile_.set_update_ns_per_byte(PerByte(alone->work_of_trainers, alone->what.bytes));
  const auto* const many = Find(Probe::SERVER_LARGE, Machines::SHM);
  const auto* const one = Find(Probe::SERVER_ONE, Machines::SHM);
  if (many == nullptr || one == nullptr) return;
  const double trainers = many->what.trainers,
               update = (trainers * one->work_of_servers - many->work_of_servers) / (trainers - 1);
  profile_.set_apply_ns_per_byte(PerByte(update, many->what.distinct_bytes));
}

// Short rows cost what the same bytes in long rows do not.
void Fitter::FitRows() {
  const auto* const rows = Find(Probe::SERVER_ROWS, Machines::SHM);
  const auto* const bytes = Find(Probe::SERVER_LARGE, Machines::SHM);
  if (rows == nullptr || bytes == nullptr) return;
  const auto number = [](const ProbeFigures& probe) {
    return 2 * probe.what.trainers * probe.what.bytes_per_trainer / probe.what.row_bytes;
  };
  const double scale = rows->what.bytes_per_trainer / bytes->what.bytes_per_trainer,
               more = number(*rows) - number(*bytes) * scale;
  profile_.set_trainer_ns_per_row(
      PerByte(rows->work_of_trainers - bytes->work_of_trainers * scale, more));
  profile_.set_server_ns_per_row(
      PerByte(rows->work_of_servers - bytes->work_of_servers * scale, more));
}

void Fitter::FitTransport(Machines::Transport transport) {
  TransportCosts& costs = *Costs(transport);
  if (const auto* const small = Find(Probe::RING_SMALL, transport)) {
    costs.set_ring_message_us(small->seconds * 1e6 / (2 * (small->what.trainers - 1)));
  }
  if (const auto* const large = Find(Probe::RING_LARGE, transport)) {
    const double n = large->what.trainers, moved = 2 * (n - 1) / n * large->what.bytes,
                 updating = large->what.bytes * profile_.update_ns_per_byte() * 1e-9;
    costs.set_ring_ns_per_byte(PerByte(large->work_of_trainers / n - updating, moved));
  }
  const auto* const calls = Find(Probe::SERVER_SMALL, transport);
  if (calls != nullptr) {
    const double n = calls->what.trainers;
    costs.set_call_us(calls->seconds * 1e6);
    costs.set_call_trainer_us(calls->work_of_trainers / n * 1e6);
    costs.set_call_server_us(calls->work_of_servers / n * 1e6);
  }
  if (const auto* const large = Find(Probe::SERVER_LARGE, transport)) {
    const double n = large->what.trainers, bytes = 2 * n * large->what.bytes_per_trainer,
                 rows = bytes / large->what.row_bytes,
                 updating = large->what.distinct_bytes * profile_.apply_ns_per_byte() * 1e-9;
    costs.set_trainer_ns_per_byte(PerByte(large->work_of_trainers -
                                              rows * profile_.trainer_ns_per_row() * 1e-9 -
                                              n * costs.call_trainer_us() * 1e-6,
                                          bytes));
    costs.set_server_ns_per_byte(PerByte(large->work_of_servers - updating -
                                             rows * profile_.server_ns_per_row() * 1e-9 -
                                             n * costs.call_server_us() * 1e-6,
                                         bytes));
  }
}

// A virtual cable between namespaces is dearer than loopback, a byte as a message.
void Fitter::ScaleNetwork() {
  if (Find(Probe::SERVER_LARGE, Machines::TCP) == nullptr) return;
  const TransportCosts &tcp = profile_.tcp(), &typical = typical_.tcp();
  TransportCosts& network = *profile_.mutable_network();
  network = typical_.network();
  network.set_ring_message_us(network.ring_message_us() * tcp.ring_message_us() /
                              typical.ring_message_us());
  network.set_ring_ns_per_byte(network.ring_ns_per_byte() * tcp.ring_ns_per_byte() /
                               typical.ring_ns_per_byte());
  network.set_call_us(network.call_us() * tcp.call_us() / typical.call_us());
  network.set_call_trainer_us(network.call_trainer_us() * tcp.call_trainer_us() /
                              typical.call_trainer_us());
  network.set_call_server_us(network.call_server_us() * tcp.call_server_us() /
                             typical.call_server_us());
  network.set_trainer_ns_per_byte(network.trainer_ns_per_byte() * tcp.trainer_ns_per_byte() /
                                  typical.trainer_ns_per_byte());
  network.set_server_ns_per_byte(network.server_ns_per_byte() * tcp.server_ns_per_byte() /
                                 typical.server_ns_per_byte());
}

CostProfile Fitter::Run() {
  FitUpdates();
  FitRows();
  FitTransport(Machines::SHM);
  FitTransport(Machines::TCP);
  ScaleNetwork();
  FitTransport(Machines::NETWORK);
  return profile_;
}

}  // namespace

CostProfile Fit(const std::vector<ProbeFigures>& probes, const CostProfile& typical) {
  return Fitter(probes, typical).Run();
}

}  // namespace tandem::bench
