// The tables of a host: their specs by number, and checks of requests against the specs.
// Thread rule: one thread at a time; returned specs are immutable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/wire/step.h"

namespace tandem {
class TableSpec;  // proto/embedding.pb.h
}  // namespace tandem

namespace tandem::ps {

class TableSpecs {
 public:
  // InvalidArgument unless tables can be made of the specs. FailedPrecondition if a table is known
  // already and differs.
  absl::Status Check(const std::vector<TableSpec>& tables) const;
  // Adds the specs. Returns the specs that were not known yet.
  // REQUIRES: Check(tables).ok().
  std::vector<std::shared_ptr<const TableSpec>> Add(const std::vector<TableSpec>& tables);
  // InvalidArgument if the table does not exist.
  absl::StatusOr<std::shared_ptr<const TableSpec>> Find(uint32_t table) const;
  // InvalidArgument unless the commit skips the step or has one finite learning rate for each
  // table.
  absl::Status CheckRates(const CommitArgs& args) const;

 private:
  std::map<uint32_t, std::shared_ptr<const TableSpec>> by_number_;
};

}  // namespace tandem::ps
