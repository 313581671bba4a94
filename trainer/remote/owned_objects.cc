#include "trainer/remote/owned_objects.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::remote {

uint64_t OwnedObjects::Add(OwnedObject object, uint64_t process, uint64_t sequence) {
  const uint64_t id = next_++;
  objects_[id] = {std::move(object), {{process, sequence}}};
  return id;
}

absl::Status OwnedObjects::Hold(uint64_t id, uint64_t process, uint64_t sequence) {
  const auto found = objects_.find(id);
  if (found == objects_.end())
    return absl::NotFoundError(absl::StrCat("object ", id, " is not here, or not any more"));
  uint64_t& last = found->second.holders[process];
  last = std::max(last, sequence);
  return absl::OkStatus();
}

template <class Over>
OwnedObjects::Freed OwnedObjects::Remove(uint64_t process, Over over) {
  Freed freed;
  for (auto entry = objects_.begin(); entry != objects_.end();) {
    auto& holders = entry->second.holders;
    const auto holder = holders.find(process);
    if (holder != holders.end() && over(entry->first, holder->second)) holders.erase(holder);
    if (!holders.empty()) {
      ++entry;
      continue;
    }
    freed.push_back(std::move(entry->second.object));
    entry = objects_.erase(entry);
  }
  return freed;
}

OwnedObjects::Freed OwnedObjects::Drop(uint64_t id, uint64_t process, uint64_t sequence) {
  return Remove(process,
                [&](uint64_t each, uint64_t hold) { return each == id && hold < sequence; });
}

OwnedObjects::Freed OwnedObjects::Keep(uint64_t process, const std::vector<uint64_t>& ids,
                                       uint64_t sequence) {
  return Remove(process, [&](uint64_t each, uint64_t hold) {
    return hold < sequence && std::find(ids.begin(), ids.end(), each) == ids.end();
  });
}

OwnedObjects::Freed OwnedObjects::Forget(uint64_t process) {
  return Remove(process, [](uint64_t, uint64_t) { return true; });
}

const OwnedObject* OwnedObjects::Find(uint64_t id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : &found->second.object;
}

size_t OwnedObjects::num_references() const {
  size_t count = 0;
  for (const auto& [id, entry] : objects_) count += entry.holders.size();
  return count;
}

}  // namespace tandem::remote
