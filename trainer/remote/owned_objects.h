// Which objects a process owns for others, and which processes refer to them. Pure: no clock, lock or network. An object is freed
// when nobody refers to it any more.
// Thread rule: one thread at a time. What was freed is handed out, to be ended where no lock is held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/remote/hosted_module.h"

namespace tandem::remote {

// One of the two.
struct OwnedObject {
  std::shared_ptr<HostedModule> module;
  std::shared_ptr<HostedOptimizer> optimizer;
};

class OwnedObjects {
 public:
  using Freed = std::vector<OwnedObject>;

  // `sequence` numbers the creations and holds of `process`.
  uint64_t Add(OwnedObject object, uint64_t process, uint64_t sequence);
  // NotFound if it was freed.
  absl::Status Hold(uint64_t id, uint64_t process, uint64_t sequence);
  // The process's holds before `sequence` are over.
  Freed Drop(uint64_t id, uint64_t process, uint64_t sequence);
  // Of its holds before `sequence`, those of `ids` are all that the process still has.
  Freed Keep(uint64_t process, const std::vector<uint64_t>& ids, uint64_t sequence);
  Freed Forget(uint64_t process);

  // Null if there is none.
  const OwnedObject* Find(uint64_t id) const;
  size_t size() const { return objects_.size(); }
  size_t num_references() const;

 private:
  struct Entry {
    OwnedObject object;
    std::map<uint64_t, uint64_t> holders;  // process to its last hold
  };
  // Of all objects whose holds by `process` pass `over`.
  template <class Over>
  Freed Remove(uint64_t process, Over over);

  std::map<uint64_t, Entry> objects_;
  uint64_t next_ = 1;
};

}  // namespace tandem::remote
