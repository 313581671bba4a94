#include "kernels/base/graph.h"

#include <utility>

#include "kernels/base/cuda_runtime_calls.h"
#include "kernels/base/status_macros.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<Graph>> Graph::Record(Stream& stream, const std::function<void()>& submit) {
  const Device device = stream.device();
  // The same work ran before, in blocks that rest now: the graph takes as much.
  BlockCache::Of(device)->FreeIdle();
  auto memory = std::make_shared<BlockCache>(device, BlockCache::Keep::ALL);
  RETURN_IF_ERROR(stream.BeginRecording());
  std::shared_ptr<BlockCache> others = BlockCache::Exchange(device, memory);
  submit();
  const absl::StatusOr<void*> graph = stream.EndRecording();
  BlockCache::Exchange(device, std::move(others));
  RETURN_IF_ERROR(graph.status());
  return std::unique_ptr<Graph>(new Graph(stream, std::move(memory), *graph));
}

Graph::~Graph() {
  stream_.Wait().IgnoreError();  // the stream keeps it
  cuda::DestroyGraph(graph_);
}

bool Graph::LeavesRoom() const { return cuda::AvailableBytes(stream_.device().index) >= memory_->num_bytes(); }

void Graph::Launch() {
  if (stream_.status().ok()) stream_.Fail(cuda::LaunchGraph(graph_, stream_.queue()));
}

}  // namespace tandem
