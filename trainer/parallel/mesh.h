// How a job's trainers are arranged: each rank has a place on every axis. Ranks that differ in one
// place alone form a group of that axis. Tensor parallelism has the neighbouring ranks, which share
// a machine; data parallelism those farther apart, and a pipeline's stages the farthest. A
// data-parallel replica is the set of ranks with one place on the DP axis: together they hold the
// model once.
// Thread rule: the thread that launches on `world`.
// Invariant: all ranks make all groups at the start, in one order.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/device.h"
#include "trainer/comm/process_group.h"

namespace tandem::parallel {

// Axes from the fastest-varying to the slowest. Context parallelism will lie between TP and DP.
enum class Axis { TP, DP, PP };
inline constexpr Axis kAxes[] = {Axis::TP, Axis::DP, Axis::PP};

struct MeshShape {
  int tp = 1, dp = 1, pp = 1;

  int on(Axis axis) const { return axis == Axis::TP ? tp : axis == Axis::DP ? dp : pp; }
  int size() const { return tp * dp * pp; }  // ranks
};

// The place of `rank` on an axis.
int PlaceOn(Axis axis, const MeshShape& shape, int rank);
// The ranks of `rank`'s group of an axis, in the order of their places.
std::vector<int> MembersOf(Axis axis, const MeshShape& shape, int rank);

class Mesh {
 public:
  // Makes the groups. Collective over `world`, which outlives the mesh. A failure of `world` fails
  // all groups. `device` is where the groups' arrays lie.
  // REQUIRES: world->size() == shape.size().
  static absl::StatusOr<std::unique_ptr<Mesh>> Create(const MeshShape& shape,
                                                      comm::ProcessGroup* world, Device device,
                                                      absl::Time deadline);

  const MeshShape& shape() const { return shape_; }
  comm::ProcessGroup& world() const { return *world_; }
  // The replicas: the ranks that hold the same part of the model. May be this rank alone.
  comm::ProcessGroup& dp() const { return *groups_[static_cast<int>(Axis::DP)]; }
  // The ranks among which layers are cut. May be this rank alone.
  comm::ProcessGroup& tp() const { return *groups_[static_cast<int>(Axis::TP)]; }
  // The ranks of a pipeline, by stage. May be this rank alone.
  comm::ProcessGroup& pp() const { return *groups_[static_cast<int>(Axis::PP)]; }
  // The ranks of a data-parallel replica, stage by stage. May be this rank alone.
  comm::ProcessGroup& replica() const { return *replica_; }

 private:
  Mesh(const MeshShape& shape, comm::ProcessGroup* world) : shape_(shape), world_(world) {}

  const MeshShape shape_;
  comm::ProcessGroup* const world_;
  std::vector<std::unique_ptr<comm::ProcessGroup>> owned_;
  std::vector<comm::ProcessGroup*> groups_;  // by axis; an axis with all ranks has `world_`
  comm::ProcessGroup* replica_ = nullptr;    // of its own only where no axis has the same ranks
};

}  // namespace tandem::parallel
