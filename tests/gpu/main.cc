// Runs the tests if a flag of GoogleTest asks for them, else `tandem`. One program holds the
// kernels of both.
#include <gtest/gtest.h>
#include <string_view>

#include "trainer/bench/commands.h"
#include "trainer/cli/program.h"

int main(int argc, char** argv) {
  if (argc < 2 || !std::string_view(argv[1]).starts_with("--gtest_"))
    return tandem::Main(argc, argv, /*kinds=*/{}, {tandem::bench::AddBenchCommands});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
