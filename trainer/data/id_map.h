// Numbers for ids that may be any text: 1, 2, 3 and so on, in order of first appearance. A model is
// trained on the numbers; people read the ids. Invariant: numbers and ids are one to one.
// Thread rule: one thread adds; const methods from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace tandem::data {

class IdMap {
 public:
  // Returns the id's number. A new id gets the next number.
  uint64_t Add(std::string_view id);
  // Returns 0 for an unknown id.
  uint64_t Find(std::string_view id) const;
  // REQUIRES: 1 <= number <= size().
  const std::string& IdOf(uint64_t number) const;
  uint64_t size() const { return ids_.size(); }

  // Lines writes one id a line, in the order of their numbers; FromLines reads them. DataLoss if an
  // id is empty or occurs twice.
  std::string Lines() const;
  static absl::StatusOr<IdMap> FromLines(std::string_view lines);

 private:
  std::vector<std::string> ids_;
  absl::flat_hash_map<std::string, uint64_t> numbers_;
};

}  // namespace tandem::data
