// The objects that a process owns for others, and the processes that refer to them. Pure: no clock,
// lock or network. An object is freed when no process refers to it. Functions return freed objects,
// so the caller can destroy them without holding a lock.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/remote/hosted_module.h"

namespace tandem::remote {

// One of the two is set.
struct OwnedObject {
  std::shared_ptr<HostedModule> module;
  std::shared_ptr<HostedOptimizer> optimizer;
};

class OwnedObjects {
 public:
  using Freed = std::vector<OwnedObject>;

  // `sequence` numbers the creations and holds of `process`.
  uint64_t Add(OwnedObject object, uint64_t process, uint64_t sequence);
  // NotFound if the object was freed.
  absl::Status Hold(uint64_t id, uint64_t process, uint64_t sequence);
  // Ends the process's holds of this object that were made before `sequence`.
  Freed Drop(uint64_t id, uint64_t process, uint64_t sequence);
  // Among the process's holds made before `sequence`, keeps those of `ids` and ends all others.
  Freed Keep(uint64_t process, const std::vector<uint64_t>& ids, uint64_t sequence);
  Freed Forget(uint64_t process);

  // Null if there is no such object.
  const OwnedObject* Find(uint64_t id) const;
  size_t size() const { return objects_.size(); }
  size_t num_references() const;

 private:
  struct Entry {
    OwnedObject object;
    std::map<uint64_t, uint64_t> holders;  // process -> its last hold
  };
  // Ends the holds by `process` that satisfy `over`, over all objects.
  template <class Over>
  Freed Remove(uint64_t process, Over over);

  std::map<uint64_t, Entry> objects_;
  uint64_t next_ = 1;
};

}  // namespace tandem::remote
