// Stand-ins for a build without NCCL.
#include "trainer/comm/device/nccl_group.h"

namespace tandem::comm {

absl::StatusOr<int> FindNccl() { return absl::NotFoundError("built without NCCL"); }

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeNcclGroup(const NcclGroupOptions&, absl::Time) {
  return FindNccl().status();
}

}  // namespace tandem::comm
