#include "trainer/parallel/pipeline/edges.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace tandem::parallel {

namespace {

// Edges that have no rank in common are made together: the even ones, the odd ones, and the one
// that closes the ring.
enum class EdgeClass { EVEN, ODD, CLOSING };
constexpr EdgeClass kEdgeClasses[] = {EdgeClass::EVEN, EdgeClass::ODD, EdgeClass::CLOSING};

// The edge of a class that a rank is part of, from rank `edge` to the next one; -1: none.
int EdgeOf(EdgeClass edge_class, int rank, int size) {
  if (edge_class == EdgeClass::CLOSING) return rank == 0 || rank == size - 1 ? size - 1 : -1;
  const int parity = edge_class == EdgeClass::EVEN ? 0 : 1;
  const int edge = rank % 2 == parity ? rank : rank - 1;
  return edge >= 0 && edge + 1 < size ? edge : -1;
}

}  // namespace

void PipelineEdges::Abort(const absl::Status& reason) const {
  for (const auto* group : {&activations_in, &activations_out, &gradients_in, &gradients_out}) {
    if (*group != nullptr) (*group)->Abort(reason);
  }
}

absl::StatusOr<PipelineEdges> MakeEdges(comm::ProcessGroup& stages, bool is_ring,
                                        absl::Time deadline) {
  PipelineEdges edges;
  const int rank = stages.rank(), size = stages.size();
  if (size == 1) return edges;
  for (const EdgeClass edge_class : kEdgeClasses) {
    if (edge_class == EdgeClass::CLOSING && !is_ring) continue;
    const int edge = EdgeOf(edge_class, rank, size);
    // Others get a group of their own, which is dropped.
    const int color = edge >= 0 ? edge : size + rank;
    const bool is_begin = rank == edge;
    const int next = (edge + 1) % size;
    ASSIGN_OR_RETURN(
        auto activations,
        stages.Split(color, is_begin ? 0 : 1,
                     absl::StrCat("activations from stage rank ", edge, " to ", next), deadline));
    ASSIGN_OR_RETURN(
        auto gradients,
        stages.Split(color, is_begin ? 1 : 0,
                     absl::StrCat("gradients from stage rank ", next, " to ", edge), deadline));
    if (edge < 0) continue;
    (is_begin ? edges.activations_out : edges.activations_in) = std::move(activations);
    (is_begin ? edges.gradients_in : edges.gradients_out) = std::move(gradients);
  }
  return edges;
}

}  // namespace tandem::parallel
