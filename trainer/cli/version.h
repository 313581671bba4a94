// The program's version, and what it computes with on this machine.
// Thread rule: any thread.
#pragma once

#include <string>

#include "kernels/base/device.h"
#include "trainer/report/run_output.h"

namespace tandem::cli {

// For the summary of a run.
report::RunProgram ThisProgram();
// Also names the device on which the run computes.
report::RunProgram ThisProgramOn(Device device);

// "Intel(R) Xeon(R) Processor, 2 logical processors": those that this process may use.
std::string ProcessorText();

// The text of `tandem --version`.
std::string VersionText();

}  // namespace tandem::cli
