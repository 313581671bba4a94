// Enforces the include table: arrows go down. Checks this tree.
// Checks broken trees too, so that the checker is known to fail where it must.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
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
      {"ps/optimizer/adam.cc", "kernels/optimizer.h"},
      {"ps/server/service.cc", "rpc/server.h"},
      {"trainer/tensor/tensor.h", "kernels/base/array_view.h"},
      {"trainer/nn/linear.cc", "trainer/tensor/tensor.h"},
      {"trainer/sparse/remote_embedding.cc", "ps/client/row_client.h"},
      {"trainer/sparse/group_exchange.h", "ps/caching/trainer_exchange.h"},
      {"trainer/loop/train_loop.cc", "trainer/comm/process_group.h"},
      {"trainer/comm/host/cpu_group.cc", "rpc/shared/memory.h"},
      {"trainer/comm/device/nccl_group.cc", "nccl.h"},
      {"trainer/cli/ps.cc", "ps/server/service.h"},
      {"trainer/main.cc", "trainer/cli/command_line.h"},
      {"examples/custom_model/main.cc", "trainer/nn/linear.h"},
      {"tests/ps/store/table_test.cc", "tests/support/cluster.h"},
      {"tests/rpc/channel_test.cc", "grpcpp/grpcpp.h"},
      {"tests/trainer/cli/program_test.cc", "examples/custom_model/two_tower.h"},
  };
  for (const auto& [source, included] : arrows)
    EXPECT_EQ(WhyForbidden(source, included), "") << source;
}

// At least one arrow that each room lacks.
TEST(IncludeDirectionTest, ForbiddenArrows) {
  const std::vector<std::vector<std::string>> arrows = {
      {"proto/job.cc", "kernels/base/check.h", "proto may not include kernels/base/check.h"},
      {"kernels/base/check.h", "kernels/trace/trace.h",
       "kernels/base may not include kernels/trace/trace.h"},
      {"kernels/trace/trace.h", "kernels/memory/stream.h",
       "kernels/trace may not include kernels/memory/stream.h"},
      {"kernels/memory/stream.h", "kernels/gemm.h",
       "kernels/memory may not include kernels/gemm.h"},
      {"kernels/gemm.h", "kernels/cpu/vector/lanes.h",
       "kernels may not include kernels/cpu/vector/lanes.h"},
      {"kernels/cpu/vector/lanes.h", "kernels/cpu/matmul/bf16_tiles.h",
       "kernels/cpu/vector may not include kernels/cpu/matmul/bf16_tiles.h"},
      {"kernels/cpu/matmul/bf16_tiles.h", "kernels/cpu/attention/block.h",
       "kernels/cpu/matmul may not include kernels/cpu/attention/block.h"},
      {"kernels/cpu/attention/block.h", "kernels/cpu/optimizer_rules.h",
       "kernels/cpu/attention may not include kernels/cpu/optimizer_rules.h"},
      {"kernels/cpu/gemm.cc", "kernels/cuda/cublaslt.h",
       "kernels/cpu may not include kernels/cuda/cublaslt.h"},
      {"kernels/cuda/plan/row_plan.h", "kernels/cuda/device/row.cuh",
       "kernels/cuda/plan may not include kernels/cuda/device/row.cuh"},
      {"kernels/cuda/device/row.cuh", "kernels/cuda/attention/tiles.cuh",
       "kernels/cuda/device may not include kernels/cuda/attention/tiles.cuh"},
      {"kernels/cuda/attention/tiles.cuh", "kernels/cuda/kernels.h",
       "kernels/cuda/attention may not include kernels/cuda/kernels.h"},
      {"kernels/cuda/gemm.cc", "kernels/cpu/vector/lanes.h",
       "kernels/cuda may not include kernels/cpu/vector/lanes.h"},
      {"rpc/store/store.h", "rpc/server.h", "rpc/store may not include rpc/server.h"},
      {"rpc/shared/stream.h", "rpc/channel.h", "rpc/shared may not include rpc/channel.h"},
      {"rpc/server.h", "rpc/master/client.h", "rpc may not include rpc/master/client.h"},
      {"rpc/master/membership.cc", "kernels/reduce.h",
       "rpc/master may not include kernels/reduce.h"},
      {"ps/wire/step.h", "ps/client/row_client.h",
       "ps/wire may not include ps/client/row_client.h"},
      {"ps/optimizer/adam.cc", "ps/store/table.h", "ps/optimizer may not include ps/store/table.h"},
      {"ps/store/table.cc", "ps/client/row_client.h",
       "ps/store may not include ps/client/row_client.h"},
      {"ps/server/service.cc", "ps/client/row_client.h",
       "ps/server may not include ps/client/row_client.h"},
      {"ps/client/remote_client.cc", "ps/store/table.h",
       "ps/client may not include ps/store/table.h"},
      {"ps/caching/geo_client.cc", "ps/server/table_host.h",
       "ps/caching may not include ps/server/table_host.h"},
      {"ps/local/local_client.cc", "ps/caching/geo_client.h",
       "ps/local may not include ps/caching/geo_client.h"},
      {"trainer/tensor/tensor.h", "ps/client/row_client.h",
       "trainer/tensor may not include ps/client/row_client.h"},
      {"trainer/autograd/node.h", "trainer/comm/process_group.h",
       "trainer/autograd may not include trainer/comm/process_group.h"},
      {"trainer/autograd/ops/ops.h", "trainer/nn/layers.h",
       "trainer/autograd/ops may not include trainer/nn/layers.h"},
      {"trainer/nn/layers.h", "trainer/remote/host.h",
       "trainer/nn may not include trainer/remote/host.h"},
      {"trainer/optim/schedule.h", "trainer/nn/layers.h",
       "trainer/optim may not include trainer/nn/layers.h"},
      {"trainer/comm/combine.cc", "kernels/reduce.h",
       "trainer/comm may not include kernels/reduce.h"},
      {"trainer/comm/host/cpu_group.cc", "trainer/tensor/tensor.h",
       "trainer/comm/host may not include trainer/tensor/tensor.h"},
      {"trainer/comm/device/nccl_group.cc", "trainer/comm/host/cpu_group.h",
       "trainer/comm/device may not include trainer/comm/host/cpu_group.h"},
      {"trainer/sparse/pooling.cc", "ps/server/table_host.h",
       "trainer/sparse may not include ps/server/table_host.h"},
      {"trainer/remote/host.cc", "ps/client/row_client.h",
       "trainer/remote may not include ps/client/row_client.h"},
      {"trainer/parallel/gradient_buckets.h", "ps/client/row_client.h",
       "trainer/parallel may not include ps/client/row_client.h"},
      {"trainer/parallel/data_parallel/ddp.cc", "trainer/parallel/served/served_parameters.h",
       "trainer/parallel/data_parallel may not include "
       "trainer/parallel/served/served_parameters.h"},
      {"trainer/parallel/zero/zero.cc", "trainer/parallel/data_parallel/ddp.h",
       "trainer/parallel/zero may not include trainer/parallel/data_parallel/ddp.h"},
      {"trainer/parallel/tensor/tensor_group.cc", "trainer/parallel/mesh.h",
       "trainer/parallel/tensor may not include trainer/parallel/mesh.h"},
      {"trainer/parallel/served/served_parameters.cc", "trainer/models/gpt.h",
       "trainer/parallel/served may not include trainer/models/gpt.h"},
      {"trainer/data/ranking.h", "trainer/data/text/text.h",
       "trainer/data may not include trainer/data/text/text.h"},
      {"trainer/data/text/text.h", "trainer/models/gpt.h",
       "trainer/data/text may not include trainer/models/gpt.h"},
      {"trainer/models/gpt.cc", "trainer/tasks/task.h",
       "trainer/models may not include trainer/tasks/task.h"},
      {"trainer/job/job_rules.cc", "trainer/tasks/task.h",
       "trainer/job may not include trainer/tasks/task.h"},
      {"trainer/sparse/step_pushes.h", "ps/client/table_admin.h",
       "trainer/sparse may not include ps/client/table_admin.h"},
      {"trainer/checkpoint/reader.h", "ps/client/row_client.h",
       "trainer/checkpoint may not include ps/client/row_client.h"},
      {"trainer/report/run_trace.h", "ps/client/row_client.h",
       "trainer/report may not include ps/client/row_client.h"},
      {"trainer/checkpoint/reader.h", "trainer/tasks/task.h",
       "trainer/checkpoint may not include trainer/tasks/task.h"},
      {"trainer/tasks/task.cc", "trainer/tasks/kinds/kinds.h",
       "trainer/tasks may not include trainer/tasks/kinds/kinds.h"},
      {"trainer/tasks/text/text_task.cc", "trainer/report/progress.h",
       "trainer/tasks/text may not include trainer/report/progress.h"},
      {"trainer/tasks/ranking/ranking_task.cc", "trainer/tasks/text/text_task.h",
       "trainer/tasks/ranking may not include trainer/tasks/text/text_task.h"},
      {"trainer/tasks/kinds/kinds.cc", "trainer/models/gpt.h",
       "trainer/tasks/kinds may not include trainer/models/gpt.h"},
      {"trainer/report/progress.cc", "trainer/loop/train_loop.h",
       "trainer/report may not include trainer/loop/train_loop.h"},
      {"trainer/loop/replica/replica.cc", "trainer/loop/step.h",
       "trainer/loop/replica may not include trainer/loop/step.h"},
      {"trainer/loop/train_loop.cc", "trainer/cli/process/signals.h",
       "trainer/loop may not include trainer/cli/process/signals.h"},
      {"trainer/cli/process/supervisor.cc", "trainer/cli/commands.h",
       "trainer/cli/process may not include trainer/cli/commands.h"},
      {"trainer/cli/saved/eval.cc", "trainer/loop/train_loop.h",
       "trainer/cli/saved may not include trainer/loop/train_loop.h"},
      {"trainer/cli/launch.cc", "tests/support/cluster.h",
       "trainer/cli may not include tests/support/cluster.h"},
      {"trainer/bench/step.cc", "tests/support/cluster.h",
       "trainer/bench may not include tests/support/cluster.h"},
      {"trainer/main.cc", "trainer/loop/train_loop.h",
       "trainer/main.cc may not include trainer/loop/train_loop.h"},
      {"examples/custom_model/main.cc", "ps/store/table.h",
       "examples/ may not include ps/store/table.h"},
      {"tests/ps/store/table_test.cc", "examples/hybrid_rpc/main.cc",
       "tests/ may not include examples/hybrid_rpc/main.cc"},
      {"trainer/new_room/x.cc", "vector",
       "trainer/new_room/x.cc is in no room of the table in tests/architecture/include_rules.cc"},
      {"ps/x.h", "vector",
       "ps/x.h is in no room of the table in tests/architecture/include_rules.cc"},
      {"kernels/memory/buffer.cc", "dnnl.hpp",
       "kernels/memory may not include <dnnl.hpp>; only kernels/cpu/ may"},
      {"kernels/base/thread_pool.cc", "omp.h",
       "kernels/base may not include <omp.h>; only kernels/cpu/ may"},
      {"kernels/memory/buffer.cc", "google/protobuf/message.h",
       "kernels/memory may not include <google/protobuf/message.h>; only proto/, rpc/, ps/, "
       "trainer/, examples/ may"},
      {"ps/server/service.cc", "grpcpp/server.h",
       "ps/server may not include <grpcpp/server.h>; only rpc/ may"},
      {"trainer/cli/launch.cc", "grpcpp/server.h",
       "trainer/cli may not include <grpcpp/server.h>; only rpc/ may"},
      {"trainer/comm/host/cpu_group.cc", "nccl.h",
       "trainer/comm/host may not include <nccl.h>; only trainer/comm/device/nccl_ may"},
  };
  for (const std::vector<std::string>& row : arrows)
    EXPECT_EQ(WhyForbidden(row[0], row[1]), row[2]);
}

class MadeUpTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("include_direction_" + std::to_string(getpid()));
    Write("ps/store/table.h",
          "#pragma once\n#include <vector>\n#include \"kernels/base/check.h\"\n");
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
        "#include \"ps/store/table.h\"\n\n  #  include  \"trainer/tasks/task.h\"  // why "
        "not\n#include <trainer/nn/linear.h>\n");
  Write("rpc/a.h", "#include <grpcpp/grpcpp.h>\n#include \"ps/store/table.h\"");
  EXPECT_EQ(Violations(), (std::vector<std::string>{
                              "ps/store/table.cc:3: ps/store may not include trainer/tasks/task.h",
                              "ps/store/table.cc:4: ps/store may not include trainer/nn/linear.h",
                              "rpc/a.h:2: rpc may not include ps/store/table.h"}));
}

TEST_F(MadeUpTreeTest, RelativePathsAreNoWayRound) {
  Write("kernels/gemm.h",
        "#include \"../ps/store/table.h\"\n#include \"base/check.h\"\n#include "
        "\"kernels/../ps/store/table.h\"\n");
  EXPECT_EQ(Violations(), (std::vector<std::string>{
                              "kernels/gemm.h:1: kernels may not include ps/store/table.h",
                              "kernels/gemm.h:3: kernels may not include ps/store/table.h"}));
}

TEST_F(MadeUpTreeTest, GeneratedHeadersBelongToProto) {
  Write("kernels/gemm.h", "#include \"job.pb.h\"\n");
  Write("ps/server/service.cc", "#include \"job.pb.h\"\n");
  EXPECT_EQ(Violations(),
            (std::vector<std::string>{"kernels/gemm.h:1: kernels may not include proto/job.pb.h"}));
}

TEST_F(MadeUpTreeTest, CommentsDoNotCount) {
  Write("kernels/gemm.h", "// #include \"ps/store/table.h\"\n");
  EXPECT_EQ(Violations(), std::vector<std::string>{});
}

}  // namespace
}  // namespace tandem
