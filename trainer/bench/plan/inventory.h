// Lists what a job synchronises: its tables, with the rows that its own first batches use, and its
// dense parameters. Parameters of equal modules are one entry.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/tasks/kinds/kinds.h"

namespace tandem::bench {

struct TableUse {
  std::string name;
  uint64_t rows = 0, dim = 0;
  // In a step, the mean over the first batches: of one trainer, and of all together.
  double rows_of_trainer = 0, distinct_rows = 0;

  double bytes() const { return static_cast<double>(rows * dim * sizeof(float)); }
  double share() const { return rows_of_trainer / static_cast<double>(rows); }
};

struct DenseUse {
  std::string name;       // "blocks.*.ffn"
  int count = 0;          // of parameters
  uint64_t elements = 0;  // of all of them

  double bytes() const { return static_cast<double>(elements * sizeof(float)); }
};

struct Inventory {
  std::vector<TableUse> tables;
  std::vector<DenseUse> dense;
  int64_t batches = 0;  // that were looked at
  // Settings that change what travels and that the model of cost does not know, in words.
  std::vector<std::string> notes;
  std::string needs_servers;  // the job's placement on servers: "placement is PS"; else empty
};

// Reads the job's data. `trainers` share each batch. InvalidArgument for a job or layout that the
// model of cost does not know.
absl::StatusOr<Inventory> TakeInventory(const std::string& job_path,
                                        const std::vector<std::string>& sets, int trainers,
                                        const tasks::Kinds& kinds);

// The module that a parameter belongs to, with `*` for its number: "blocks.*.ffn" of
// "blocks.3.ffn.up.weight", "head" of "head.bias".
std::string FoldedName(const std::string& name);

}  // namespace tandem::bench
