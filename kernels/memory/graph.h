// Work of a CUDA stream, recorded once and submitted again as a whole: kernels with the arguments that they had, for the price of one
// launch. What changes between launches is read from memory that somebody fills before (Stream::StepOnDevice, input arrays), so a launch
// has the bits that submitting the same work again would have. The memory that the thread takes while it records belongs to the graph:
// nobody else gets it before the graph is gone.
// What the host has to do in the middle, such as to start a collective, parts a graph in several, launched one after another.
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
  // Records what `submit` gives to the stream, none of which runs. An error says what cannot be recorded, and the stream is as it was
  // before. Tensors made by `submit` may be kept; each launch fills them. REQUIRES: stream.on_cuda(), stream.status().ok().
  static absl::StatusOr<std::unique_ptr<Graph>> Record(Stream& stream, const std::function<void(Recording&)>& submit);
  // Waits for the stream.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Submits what was recorded, and does the host's work in between, also after an error, which stays with the stream.
  void Launch();
  // Whether the device has as much memory left as the graph keeps to itself: enough for the same work done without it.
  bool LeavesRoom() const;

 private:
  struct Part {
    void* graph;                       // a cudaGraphExec_t
    std::function<void()> host_work;  // behind it; null behind the last
  };
  Graph(Stream& stream, std::shared_ptr<BlockCache> memory) : stream_(stream), memory_(std::move(memory)) {}

  Stream& stream_;
  const std::shared_ptr<BlockCache> memory_;
  std::vector<Part> parts_;
};

// While a graph is recorded.
class Graph::Recording {
 public:
  // What the host does with every launch when it has submitted what was recorded before, and not what comes after. The work finds the
  // stream as if nothing had been recorded: it may mark the place with an event.
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
