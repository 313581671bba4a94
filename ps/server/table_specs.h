// What tables a host has: their specifications by number, and what a request may say of them.
// Thread rule: one thread at a time; specifications that were handed out are immutable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/embedding.pb.h"
#include "ps/wire/step.h"

namespace tandem::ps {

class TableSpecs {
 public:
  // InvalidArgument unless tables can be made of them; FailedPrecondition if one is known already and differs.
  absl::Status Check(const std::vector<TableSpec>& tables) const;
  // Returns those that were not known yet. REQUIRES: Check(tables).ok().
  std::vector<std::shared_ptr<const TableSpec>> Add(const std::vector<TableSpec>& tables);
  // InvalidArgument if there is no such table.
  absl::StatusOr<std::shared_ptr<const TableSpec>> Find(uint32_t table) const;
  // InvalidArgument unless the commit has one finite learning rate for each table, or skips the step.
  absl::Status CheckRates(const CommitArgs& args) const;

 private:
  std::map<uint32_t, std::shared_ptr<const TableSpec>> by_number_;
};

}  // namespace tandem::ps
