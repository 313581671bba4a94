#include "trainer/comm/shared_rendezvous.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::comm {

namespace {

constexpr char kReady[] = "ready";  // any other value of the segment's key is rank 0's error

std::string StoreKey(const SharedRendezvous& where, const std::string& part) {
  return absl::StrCat("comm/", where.key, "/", part);
}

// Rank 0 reports its own failure, so that nobody waits for a name that never comes.
absl::StatusOr<std::unique_ptr<rpc::SharedMemory>> CreateFor(const SharedRendezvous& where, const std::string& name,
                                                             size_t num_bytes, absl::Time deadline) {
  auto memory = rpc::SharedMemory::Create(name, num_bytes);
  RETURN_IF_ERROR(where.store->Set(StoreKey(where, "segment"),
                                   memory.ok() ? kReady : std::string(memory.status().message())));
  if (!memory.ok()) return memory;
  for (int r = 1; r < where.size; ++r) {
    auto attached = where.store->Get(StoreKey(where, absl::StrCat("attached/", r)), deadline);
    if (absl::IsDeadlineExceeded(attached.status())) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", r, " of ", where.size, " did not join group '", where.key, "'"));
    }
    RETURN_IF_ERROR(attached.status());
  }
  (*memory)->Unlink();
  return memory;
}

absl::StatusOr<std::unique_ptr<rpc::SharedMemory>> OpenFrom(const SharedRendezvous& where, const std::string& name,
                                                            size_t num_bytes, absl::Time deadline) {
  auto said = where.store->Get(StoreKey(where, "segment"), deadline);
  if (absl::IsDeadlineExceeded(said.status())) {
    return absl::DeadlineExceededError(absl::StrCat("rank 0 of ", where.size, " did not open group '", where.key, "'"));
  }
  RETURN_IF_ERROR(said.status());
  if (*said != kReady) return absl::UnavailableError(absl::StrCat("rank 0 of group '", where.key, "': ", *said));
  auto memory = rpc::SharedMemory::Open(name, num_bytes);
  if (!memory.ok()) return memory;
  RETURN_IF_ERROR(where.store->Set(StoreKey(where, absl::StrCat("attached/", where.rank)), kReady));
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<rpc::SharedMemory>> MapTogether(const SharedRendezvous& where, size_t num_bytes,
                                                               absl::Time deadline) {
  // The key may hold any characters and any length; its hash names the segment.
  const std::string name = absl::StrFormat("tandem-%s-%016x", where.token, StableHash(where.key));
  return where.rank == 0 ? CreateFor(where, name, num_bytes, deadline) : OpenFrom(where, name, num_bytes, deadline);
}

}  // namespace tandem::comm
