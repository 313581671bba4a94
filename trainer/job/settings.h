// A job as a flat list of its fields, for a run's record: what --set would write.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/job.pb.h"

namespace tandem::job {

// All fields of a loaded job that have a value, by path, in the order of job.proto:
// {"train.batch_size", "256"}, {"tables[item].dim", "64"}. Empty texts, unspecified choices and
// absent messages are left out. A list of plain values is written A,B,C.
std::vector<std::pair<std::string, std::string>> SettingsOf(const Job& job);

}  // namespace tandem::job
