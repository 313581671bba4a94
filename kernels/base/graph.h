// Work of a CUDA stream, recorded once and submitted again as a whole: kernels with the arguments that they had, for the price of one
// launch. What changes between launches is read from memory that somebody fills before (Stream::StepOnDevice, input arrays), so a launch
// has the bits that submitting the same work again would have. The memory that the thread takes while it records belongs to the graph:
// nobody else gets it before the graph is gone.
// Thread rule: the stream's thread. The stream outlives the graph.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/base/block_cache.h"
#include "kernels/base/stream.h"

namespace tandem {

class Graph {
 public:
  // Records what `submit` gives to the stream, none of which runs. An error says what cannot be recorded, and the stream is as it was
  // before. Tensors made by `submit` may be kept; each launch fills them. REQUIRES: stream.on_cuda(), stream.status().ok().
  static absl::StatusOr<std::unique_ptr<Graph>> Record(Stream& stream, const std::function<void()>& submit);
  // Waits for the stream.
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Submits what was recorded. An error stays with the stream.
  void Launch();
  // Whether the device has as much memory left as the graph keeps to itself: enough for the same work done without it.
  bool LeavesRoom() const;

 private:
  Graph(Stream& stream, std::shared_ptr<BlockCache> memory, void* graph)
      : stream_(stream), memory_(std::move(memory)), graph_(graph) {}

  Stream& stream_;
  const std::shared_ptr<BlockCache> memory_;
  void* const graph_;  // a cudaGraphExec_t
};

}  // namespace tandem
