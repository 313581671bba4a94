// The program that kill_test kills: resumes the newest checkpoint of a folder and writes one after
// another, each step's twice.
// After step s every dense value and every row's weight is s, so that a mixture of two steps would
// show.
//   endless_writer FOLDER STEPS
#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"
#include "ps/local/local_client.h"
#include "tests/trainer/checkpoint/counting_run.h"

namespace tandem::checkpoint {
namespace {

absl::Status Run(const std::string& folder, uint64_t num_steps) {
  CountingRun run;
  uint64_t step = 0, best_step = 0;
  if (!ListCheckpoints(folder).empty()) {
    const auto newest = run.Restore(folder, Choice::NEWEST);
    if (!newest.ok()) return newest.status();
    step = newest->step();
    best_step = newest->best_step();
  }
  for (const uint64_t last = step + num_steps; step < last;) {
    ++step;
    absl::Status status = run.Train(step);
    if (status.ok()) status = run.Write(folder, step, best_step);
    if (step % 3 == 0) best_step = step;
    if (status.ok()) status = run.Write(folder, step, best_step);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace tandem::checkpoint

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const absl::Status status = tandem::checkpoint::Run(argv[1], std::strtoull(argv[2], nullptr, 10));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
