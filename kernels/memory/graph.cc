#include "kernels/memory/graph.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/memory/cuda_runtime_calls.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Graph>> Graph::Record(
    Stream& stream, const std::function<void(Recording&)>& submit) {
  const Device device = stream.device();
  // Frees the idle blocks of the work's earlier run, because the graph takes as much memory.
  BlockCache::Of(device)->FreeIdle();
  auto memory = std::make_shared<BlockCache>(device, BlockCache::Keep::ALL);
  std::unique_ptr<Graph> graph(new Graph(stream, memory));
  Recording recording(*graph);
  recording.Begin();
  RETURN_IF_ERROR(recording.status_);
  std::shared_ptr<BlockCache> others = BlockCache::Exchange(device, std::move(memory));
  submit(recording);
  recording.End(nullptr);
  BlockCache::Exchange(device, std::move(others));
  RETURN_IF_ERROR(recording.status_);
  return graph;
}

void Graph::Recording::DoOnHost(std::function<void()> work) {
  End(std::move(work));
  Begin();  // Begins again even after an error, so that later work does not run.
  if (!is_open_) graph_.stream_.Fail(status_);
}

void Graph::Recording::Begin() {
  const absl::Status begun = graph_.stream_.BeginRecording();
  is_open_ = begun.ok();
  status_.Update(begun);
}

void Graph::Recording::End(std::function<void()> host_work) {
  if (!is_open_) return;
  is_open_ = false;
  const absl::StatusOr<void*> part = graph_.stream_.EndRecording();
  if (part.ok()) graph_.parts_.push_back({*part, std::move(host_work)});
  status_.Update(part.status());
}

Graph::~Graph() {
  stream_.Wait().IgnoreError();  // the stream keeps the error
  if (stream_.is_late()) {       // the device may still run the graph
    Stream::Abandon(memory_);
    return;
  }
  for (const Part& part : parts_) cuda::DestroyGraph(part.graph);
}

bool Graph::LeavesRoom() const {
  return cuda::AvailableBytes(stream_.device().index) >= memory_->num_bytes();
}

void Graph::Launch() {
  for (const Part& part : parts_) {
    if (stream_.status().ok()) stream_.Fail(cuda::LaunchGraph(part.graph, stream_.queue()));
    if (part.host_work) part.host_work();
  }
}

}  // namespace tandem
