#include "trainer/parallel/mesh.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "trainer/comm/solo_group.h"

namespace tandem::parallel {

namespace {

// The distance between the ranks of neighbouring places on an axis.
int StrideOf(Axis axis, const MeshShape& shape) {
  int stride = 1;
  for (const Axis faster : kAxes) {
    if (faster == axis) break;
    stride *= shape.on(faster);
  }
  return stride;
}

const char* NameOf(Axis axis) { return axis == Axis::TP ? "tp" : axis == Axis::DP ? "dp" : "pp"; }

}  // namespace

int PlaceOn(Axis axis, const MeshShape& shape, int rank) {
  return rank / StrideOf(axis, shape) % shape.on(axis);
}

std::vector<int> MembersOf(Axis axis, const MeshShape& shape, int rank) {
  const int stride = StrideOf(axis, shape), first = rank - PlaceOn(axis, shape, rank) * stride;
  std::vector<int> members;
  for (int place = 0; place < shape.on(axis); ++place) members.push_back(first + place * stride);
  return members;
}

absl::StatusOr<std::unique_ptr<Mesh>> Mesh::Create(const MeshShape& shape,
                                                   comm::ProcessGroup* world, Device device,
                                                   absl::Time deadline) {
  TANDEM_CHECK_EQ(world->size(), shape.size());
  std::unique_ptr<Mesh> mesh(new Mesh(shape, world));
  for (const Axis axis : kAxes) {
    if (shape.on(axis) == world->size()) {
      mesh->groups_.push_back(world);
      continue;
    }
    std::unique_ptr<comm::ProcessGroup> group;
    if (shape.on(axis) == 1) {
      group = std::make_unique<comm::SoloGroup>(NameOf(axis), device);
    } else {
      const std::vector<int> members = MembersOf(axis, shape, world->rank());
      const std::string name =
          absl::StrCat(NameOf(axis), " of ranks ", absl::StrJoin(members, ", "));
      ASSIGN_OR_RETURN(group, world->Split(members.front(), PlaceOn(axis, shape, world->rank()),
                                           name, deadline));
    }
    mesh->groups_.push_back(group.get());
    mesh->owned_.push_back(std::move(group));
  }
  if (shape.dp == 1 || shape.pp == 1 || shape.tp == 1) {
    mesh->replica_ = shape.dp == 1 ? world : shape.pp == 1 ? &mesh->tp() : &mesh->pp();
    return mesh;
  }
  const int replica = PlaceOn(Axis::DP, shape, world->rank());
  ASSIGN_OR_RETURN(auto group, world->Split(replica, world->rank(),
                                            absl::StrCat("replica ", replica), deadline));
  mesh->replica_ = group.get();
  mesh->owned_.push_back(std::move(group));
  return mesh;
}

}  // namespace tandem::parallel
