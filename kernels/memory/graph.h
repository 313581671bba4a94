// A CUDA graph: work of a stream, recorded once and launched again as a whole, for the price of one
// launch. Kernels keep their arguments. Values that change between launches are read from memory
// (Stream::StepOnDevice, input arrays). So a launch gives the same bits as submitting the work
// again.
// Memory allocated while recording belongs to the graph; nobody else gets it before the graph is
// gone.
// Host work in the middle (starting a collective) splits a graph into parts, launched one after
// another.
// Thread rule: the stream's thread. The stream outlives the graph.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/memory/block_cache.h"
#include "kernels/memory/stream.h"

namespace tandem {

class Graph {
 public:
  class Recording;
  // Records what `submit` submits to the stream; none of the work runs. An error says what cannot
  // be recorded, and leaves the stream unchanged. Tensors made by `submit` may be kept; each launch
  // fills them.
  // REQUIRES: stream.on_cuda(), stream.status().ok().
  static absl::StatusOr<std::unique_ptr<Graph>> Record(
      Stream& stream, const std::function<void(Recording&)>& submit);
  // Waits for the stream.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Submits the recorded parts and does the host work between them, even after an error. The error
  // stays with the stream.
  void Launch();
  // True if the device has at least as much free memory as the graph keeps: enough for the same
  // work without the graph.
  bool LeavesRoom() const;

 private:
  struct Part {
    void* graph;                      // a cudaGraphExec_t
    std::function<void()> host_work;  // after the part; null after the last part
  };
  Graph(Stream& stream, std::shared_ptr<BlockCache> memory)
      : stream_(stream), memory_(std::move(memory)) {}

  Stream& stream_;
  const std::shared_ptr<BlockCache> memory_;
  std::vector<Part> parts_;
};

// A recording in progress.
class Graph::Recording {
 public:
  // Runs `work` on the host at every launch, between the work recorded before and the work recorded
  // after. `work` may submit to the stream as usual, for example to record an event.
  void DoOnHost(std::function<void()> work);

 private:
  friend class Graph;
  explicit Recording(Graph& graph) : graph_(graph) {}
  void Begin();
  void End(std::function<void()> host_work);

  Graph& graph_;
  bool is_open_ = false;
  absl::Status status_;  // the first error
};

}  // namespace tandem
