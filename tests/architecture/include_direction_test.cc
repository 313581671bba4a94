// The one style rule that a machine enforces: arrows go down. Checked on this tree, and on broken ones, so that the checker
// itself is known to go red.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/architecture/include_rules.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

TEST(IncludeDirectionTest, ThisTreeKeepsTheArrows) {
  const IncludeReport report = CheckIncludes(TANDEM_SOURCE_DIR);
  EXPECT_GT(report.num_files, 50) << "the sources were not found under " << TANDEM_SOURCE_DIR;
  std::string lines;
  for (const std::string& violation : report.violations) lines += "\n" + violation;
  EXPECT_EQ(lines, "");
}

TEST(IncludeDirectionTest, AllowedArrows) {
  const std::vector<std::pair<std::string, std::string>> arrows = {
      {"kernels/cpu/gemm.cc", "kernels/base/dtype.h"},
      {"kernels/cpu/gemm.cc", "dnnl.hpp"},
      {"kernels/cpu/gemm.cc", "omp.h"},
      {"kernels/memory/buffer.h", "absl/status/status.h"},
      {"kernels/memory/buffer.h", "vector"},
      {"rpc/server.cc", "grpcpp/server.h"},
      {"rpc/server.cc", "kernels/base/clock.h"},
      {"rpc/master/service.cc", "proto/master.pb.h"},
      {"ps/store/table.cc", "kernels/optimizer.h"},
      {"ps/server/service.cc", "rpc/server.h"},
      {"trainer/tensor/tensor.h", "kernels/base/array_view.h"},
      {"trainer/nn/linear.cc", "trainer/tensor/tensor.h"},
      {"trainer/sparse/remote_embedding.cc", "ps/client/client.h"},
      {"trainer/sparse/group_exchange.h", "ps/caching/trainer_exchange.h"},
      {"trainer/loop/loop.cc", "trainer/comm/process_group.h"},
      {"trainer/comm/host/cpu_group.cc", "rpc/shared/memory.h"},
      {"trainer/comm/device/nccl_group.cc", "nccl.h"},
      {"trainer/cli/ps.cc", "ps/server/service.h"},
      {"trainer/main.cc", "trainer/cli/launch.h"},
      {"examples/custom_model/main.cc", "trainer/nn/linear.h"},
      {"tests/ps/store/table_test.cc", "tests/support/cluster.h"},
      {"tests/rpc/channel_test.cc", "grpcpp/grpcpp.h"},
  };
  for (const auto& [source, included] : arrows) EXPECT_EQ(WhyForbidden(source, included), "") << source;
}

TEST(IncludeDirectionTest, ForbiddenArrows) {
  const std::vector<std::vector<std::string>> arrows = {
      {"proto/job.cc", "kernels/base/check.h", "proto may not include kernels/base/check.h"},
      {"kernels/gemm.h", "rpc/future.h", "kernels may not include rpc/future.h"},
      {"kernels/gemm.h", "proto/wire.pb.h", "kernels may not include proto/wire.pb.h"},
      {"kernels/memory/buffer.cc", "dnnl.hpp", "kernels may not include <dnnl.hpp>; only kernels/cpu/ may"},
      {"kernels/base/thread_pool.cc", "omp.h", "kernels may not include <omp.h>; only kernels/cpu/ may"},
      {"kernels/memory/buffer.cc", "google/protobuf/message.h",
       "kernels may not include <google/protobuf/message.h>; only proto/, rpc/, ps/, trainer/, examples/ may"},
      {"rpc/server.h", "kernels/gemm.h", "rpc may not include kernels/gemm.h"},
      {"rpc/master/membership.cc", "kernels/reduce.h", "rpc may not include kernels/reduce.h"},
      {"rpc/server.h", "ps/store/table.h", "rpc may not include ps/store/table.h"},
      {"ps/store/table.cc", "trainer/tasks/task.h", "ps may not include trainer/tasks/task.h"},
      {"ps/server/service.cc", "grpcpp/server.h", "ps may not include <grpcpp/server.h>; only rpc/ may"},
      {"trainer/cli/launch.cc", "grpcpp/server.h", "trainer/cli may not include <grpcpp/server.h>; only rpc/ may"},
      {"trainer/remote/host.cc", "ps/store/table.h", "trainer/remote may not include ps/store/table.h"},
      {"trainer/loop/loop.cc", "ps/client/remote_client.h", "trainer/loop may not include ps/client/remote_client.h"},
      {"trainer/loop/loop.cc", "trainer/cli/launch.h", "trainer/loop may not include trainer/cli/launch.h"},
      {"trainer/models/ctr.cc", "trainer/tasks/task.h", "trainer/models may not include trainer/tasks/task.h"},
      {"trainer/parallel/data_parallel/ddp.cc", "trainer/models/ctr.h", "trainer/parallel may not include trainer/models/ctr.h"},
      {"trainer/remote/host.cc", "trainer/parallel/data_parallel/ddp.h", "trainer/remote may not include trainer/parallel/data_parallel/ddp.h"},
      {"trainer/nn/linear.h", "trainer/remote/host.h", "trainer/nn may not include trainer/remote/host.h"},
      {"trainer/autograd/node.h", "trainer/nn/linear.h", "trainer/autograd may not include trainer/nn/linear.h"},
      {"trainer/autograd/node.h", "trainer/comm/process_group.h",
       "trainer/autograd may not include trainer/comm/process_group.h"},
      {"trainer/tensor/tensor.h", "trainer/autograd/node.h", "trainer/tensor may not include trainer/autograd/node.h"},
      {"trainer/comm/host/cpu_group.cc", "trainer/tensor/tensor.h", "trainer/comm may not include trainer/tensor/tensor.h"},
      {"trainer/comm/host/cpu_group.cc", "kernels/reduce.h", "trainer/comm may not include kernels/reduce.h"},
      {"trainer/comm/host/cpu_group.cc", "nccl.h", "trainer/comm may not include <nccl.h>; only trainer/comm/nccl_ may"},
      {"trainer/cli/launch.cc", "tests/support/cluster.h", "trainer/cli may not include tests/support/cluster.h"},
      {"trainer/main.cc", "tests/support/cluster.h", "trainer/main.cc may not include tests/support/cluster.h"},
      {"examples/custom_model/main.cc", "ps/store/table.h", "examples may not include ps/store/table.h"},
      {"examples/custom_model/main.cc", "kernels/gemm.h", "examples may not include kernels/gemm.h"},
      {"trainer/new_room/x.cc", "vector",
       "trainer/new_room/x.cc is in no room of the table in tests/architecture/include_rules.cc"},
  };
  for (const std::vector<std::string>& row : arrows) EXPECT_EQ(WhyForbidden(row[0], row[1]), row[2]);
}

class MadeUpTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("include_direction_" + std::to_string(getpid()));
    Write("ps/store/table.h", "#pragma once\n#include <vector>\n#include \"kernels/base/check.h\"\n");
    Write("kernels/base/check.h", "#pragma once\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::vector<std::string> Violations() { return CheckIncludes(root_).violations; }

  fs::path root_;
};

TEST_F(MadeUpTreeTest, CleanTreeIsGreen) {
  EXPECT_EQ(CheckIncludes(root_).num_files, 2);
  EXPECT_EQ(Violations(), std::vector<std::string>{});
}

TEST_F(MadeUpTreeTest, BrokenArrowsAreNamedByFileAndLine) {
  Write("ps/store/table.cc",
        "#include \"ps/store/table.h\"\n\n  #  include  \"trainer/tasks/task.h\"  // why not\n#include <trainer/nn/linear.h>\n");
  Write("rpc/a.h", "#include <grpcpp/grpcpp.h>\n#include \"ps/store/table.h\"");
  EXPECT_EQ(Violations(), (std::vector<std::string>{"ps/store/table.cc:3: ps may not include trainer/tasks/task.h",
                                                    "ps/store/table.cc:4: ps may not include trainer/nn/linear.h",
                                                    "rpc/a.h:2: rpc may not include ps/store/table.h"}));
}

TEST_F(MadeUpTreeTest, RelativePathsAreNoWayRound) {
  Write("kernels/gemm.h", "#include \"../ps/table.h\"\n#include \"base/check.h\"\n#include \"kernels/../ps/table.h\"\n");
  EXPECT_EQ(Violations(), (std::vector<std::string>{"kernels/gemm.h:1: kernels may not include ps/store/table.h",
                                                    "kernels/gemm.h:3: kernels may not include ps/store/table.h"}));
}

TEST_F(MadeUpTreeTest, GeneratedHeadersBelongToProto) {
  Write("kernels/gemm.h", "#include \"job.pb.h\"\n");
  Write("ps/server/service.cc", "#include \"job.pb.h\"\n");
  EXPECT_EQ(Violations(), (std::vector<std::string>{"kernels/gemm.h:1: kernels may not include proto/job.pb.h"}));
}

TEST_F(MadeUpTreeTest, CommentsDoNotCount) {
  Write("kernels/gemm.h", "// #include \"ps/store/table.h\"\n");
  EXPECT_EQ(Violations(), std::vector<std::string>{});
}

}  // namespace
}  // namespace tandem
