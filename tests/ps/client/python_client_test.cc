// A client written from proto/ alone (python_client.py) trains on our servers as a job's only
// trainer.
// Skipped without Debian's python3-grpcio.
#include <memory>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "ps/server/service.h"
#include "ps/server/table_host.h"
#include "rpc/master/client.h"
#include "rpc/master/service.h"
#include "rpc/server.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"
#include "tests/support/wait_limit.h"

namespace tandem::ps {
namespace {

constexpr const char* kPython = "/usr/bin/python3";  // Debian's
constexpr uint32_t kNumServers = 2;
constexpr uint64_t kFingerprint = 20221111;

// `tandem ps` without its command line: serves until the job is over.
absl::Status Serve(const std::string& master, const rpc::Credentials& credentials) {
  TableHost host(2);
  EmbeddingService service(host);
  rpc::Server server(credentials);
  service.Register(server);
  if (const absl::Status status = server.Start("127.0.0.1:0"); !status.ok()) return status;
  rpc::MemberSelf self;
  self.role = PS;
  self.host = "localhost";
  self.address = server.address();
  self.job_fingerprint = kFingerprint;
  const auto client =
      rpc::MasterClient::Connect(master, self, [&host](absl::Status reason) { host.Fail(reason); },
                                 {.credentials = credentials});
  if (!client.ok()) return client.status();
  const rpc::Assignment& assignment = (*client)->assignment();
  service.Open(assignment.job_epoch, assignment.generation, assignment.shard_map, assignment.rank);
  const absl::Status status = (*client)->WaitForCompletion();
  (*client)->Leave(status).IgnoreError();
  return status;
}

TEST(PythonClientTest, TrainsFromTheProtoFilesAlone) {
  const support::TempFolder folder;
  const auto found =
      support::Process(folder.path(), {kPython, "-c", "import grpc, google.protobuf"})
          .WaitWhileItWorks();
  if (found.exit_code != 0)
    GTEST_SKIP() << kPython << " has no grpc: install python3-grpcio and python3-protobuf";

  rpc::MasterService master(
      {.num_ps = kNumServers, .num_trainers = 1, .job_fingerprint = kFingerprint});
  const std::string secret_file =
      folder.Write("secret", "what the trainer and its servers know\r\n");
  chmod(secret_file.c_str(), 0600);
  const rpc::Credentials credentials(*rpc::Secret::Read(secret_file));
  rpc::Server server(credentials);
  master.RegisterHandlers(server);
  ASSERT_TRUE(server.Start("127.0.0.1:0").ok());
  std::vector<std::thread> threads;
  std::vector<absl::Status> ends(kNumServers);
  for (absl::Status& end : ends)
    threads.emplace_back([&] { end = Serve(server.address(), credentials); });

  const std::string generated = folder / "generated";
  std::filesystem::create_directory(generated);
  const auto ended =
      support::Process(folder.path(),
                       {kPython, TANDEM_SOURCE_DIR "/tests/ps/client/python_client.py",
                        TANDEM_PROTOC, TANDEM_SOURCE_DIR "/proto", generated, server.address(),
                        std::to_string(kFingerprint), secret_file})
          .WaitWhileItWorks();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "ok\n");
  if (ended.exit_code != 0) master.Fail(absl::CancelledError("the trainer failed"));
  const support::WaitLimit limit("the servers to end");
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& end : ends) EXPECT_EQ(end.ok(), ended.exit_code == 0) << end;
}

}  // namespace
}  // namespace tandem::ps
