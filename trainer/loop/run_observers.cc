#include "trainer/loop/run_observers.h"

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/device.h"
#include "trainer/report/trace_file.h"

namespace tandem::loop {

namespace {

report::RunTraceOptions TraceOptionsOf(Replica* replica) {
  const Job& job = replica->job;
  report::RunTraceOptions options{
      .first_step = replica->state.step() + job.trace().first_step(),
      .num_steps = job.trace().steps(),
      .stream = &replica->stream,
      .group = &replica->world,
      .tables = replica->clients.tables,
      .master = replica->environment.master,
      .note = [replica](const std::string& text) { replica->Note(text); }};
  if (replica->environment.on_trace) {
    options.deliver = [replica](const std::vector<RoleTrace>& traces) {
      replica->environment.on_trace(traces);
      return absl::OkStatus();
    };
  } else if (replica->output != nullptr) {
    options.deliver = [replica](std::vector<RoleTrace> traces) {
      return report::WriteTraceFile(replica->output->folder() + "/trace.json", std::move(traces));
    };
  }
  return options;
}

// Sums over holders of copies are on the axis of the ranks that hold them.
report::CollectiveMeter::Axes AxesOf(const Replica& replica) {
  std::vector<const comm::ProcessGroup*> tp{&replica.mesh.tp(), &replica.arrays.tp()};
  for (const auto* const holders : {replica.holders.get(), replica.array_holders.get()}) {
    if (holders == nullptr) continue;
    for (const auto& [number, group] : holders->groups()) tp.push_back(group);
  }
  const parallel::PipelineEdges& edges = replica.pipeline.edges();
  std::vector<const comm::ProcessGroup*> pp{&replica.mesh.pp(), &replica.arrays.pp()};
  for (const auto* const edge :
       {&edges.activations_in, &edges.activations_out, &edges.gradients_in, &edges.gradients_out})
    pp.push_back(edge->get());
  for (const auto* const holders : {replica.holders.get(), replica.array_holders.get()}) {
    if (holders != nullptr) pp.push_back(holders->tied());
  }
  return {{"tp", tp},
          {"dp", {&replica.mesh.dp(), &replica.arrays.dp()}},
          {"pp", pp},
          {"all", {&replica.mesh.world(), &replica.arrays.world()}}};
}

}  // namespace

RunObservers::RunObservers(Replica* replica)
    : trace(TraceOptionsOf(replica)),
      clock(&replica->stream),
      throughput(PeakFlops(replica->stream.device(), replica->compute)),
      collectives(AxesOf(*replica)) {
  all.Add(&trace);
  if (replica->output != nullptr && !replica->is_bsp())
    all.Add(&servers.emplace(replica->clients.tables));
  all.Add(&clock);
  all.Add(&collectives);
  all.Add(&throughput);  // after the waits of the observers above, which belong to the step
  all.Add(replica->output);
  all.Add(replica->environment.observer);
}

}  // namespace tandem::loop
