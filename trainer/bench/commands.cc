#include "trainer/bench/commands.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "trainer/cli/command_line.h"

namespace tandem::bench {

namespace {

void AddStore(CLI::App& bench, int* code) {
  const auto options = std::make_shared<StoreOptions>();
  auto* command = bench.add_subcommand(
      "store", "one table on one thread, beside the same work on rows whose places are known");
  command
      ->add_option("--op", options->ops,
                   "what is done with the rows; default: gather, sgd and adagrad")
      ->check(CLI::IsMember({"gather", "sgd", "adagrad", "grow"}))
      ->type_name("gather|sgd|adagrad|grow");
  command->add_option("--rows", options->rows, "of the table")
      ->check(CLI::Range(uint64_t{10000}, uint64_t{4000000000}))
      ->capture_default_str();
  command
      ->add_option("--batch", options->batch,
                   "ids of a call; default: 4096 x 26, those of a step; 4096: of a message")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--dim", options->dims, "default: 64, 16 and 128; of grow 16")
      ->check(CLI::Range(1, 65536));
  command->add_option("--ids", options->ids, "how ids are drawn; default: both")
      ->check(CLI::IsMember({"uniform", "zipf"}))
      ->type_name("uniform|zipf");
  command
      ->add_option("--memory", options->memory_gb,
                   "grow: rows are created until the table takes so much, in units of 10^9 bytes")
      ->check(CLI::PositiveNumber)
      ->type_name("GB")
      ->capture_default_str();
  command->add_option("--repetitions", options->repetitions, "of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--json", options->json, "write the figures as JSON")->type_name("FILE");
  command->callback([=] { *code = BenchStore(*options); });
}

void AddStep(CLI::App& bench, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<StepOptions>();
  auto* command = bench.add_subcommand("step", "a whole training step, and where its time goes");
  command
      ->add_option("--preset", options->presets,
                   "gpt, sasrec, gpt2 (124M parameters) or a job file; default: gpt and sasrec")
      ->type_name("gpt|sasrec|gpt2|JOB");
  command->add_option("--threads", options->threads, "compute threads; default: 1 and 2")
      ->check(CLI::Range(1, 256));
  command->add_option("--dtype", options->dtypes, "f32 or bf16; default: both where the job can")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("f32|bf16");
  cli::AddSetFlag(*command, options->sets);
  command->add_option("--steps", options->steps, "timed steps")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--json", options->json, "write the figures as JSON")->type_name("FILE");
  command->callback([=, &kinds] { *code = BenchStep(*options, kinds); });
}

void AddAllReduce(CLI::App& bench, int* code) {
  const auto options = std::make_shared<AllReduceOptions>();
  auto* command = bench.add_subcommand(
      "allreduce", "sums of f32 arrays over ranks of this machine, beside Gloo's");
  command->add_option("--ranks", options->ranks, "threads, each with its own group")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  command
      ->add_option("--backend", options->backends,
                   "shm, tcp, or gloo where libgloo-dev was installed; default: all")
      ->check(CLI::IsMember({"shm", "tcp", "gloo"}))
      ->type_name("shm|tcp|gloo");
  command->add_option("--bytes", options->bytes, "of an array; default: 4 KB to 100 MB")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 32));
  command->add_option("--repetitions", options->repetitions, "the median of so many is told")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--json", options->json, "write the figures as JSON")->type_name("FILE");
  command->callback([=] { *code = BenchAllReduce(*options); });
}

void AddScheduleBench(CLI::App& bench, int* code) {
  const auto options = std::make_shared<ScheduleBenchOptions>();
  auto* command = bench.add_subcommand(
      "schedule",
      "pipeline schedules with waits in place of kernels, beside what the verifier says");
  command->add_option("--stages", options->stages, "ranks of the pipeline, each a thread")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option("--microbatches", options->microbatches, "of a step")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--virtual-stages", options->virtual_stages, "chunks a rank, for INTERLEAVED")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      ->add_option("--milliseconds", options->milliseconds,
                   "of a microbatch's forward pass, and of each half of its backward pass")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--repetitions", options->repetitions, "of which the shortest is told")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--json", options->json, "write the figures as JSON")->type_name("FILE");
  command->callback([=] { *code = BenchSchedule(*options); });
}

// Hidden: for the processes that a command starts.
void AddMemberFlags(CLI::App& command, MemberOptions& options) {
  for (auto [name, value] : {std::pair("--role", &options.role),
                             {"--case", &options.what},
                             {"--master", &options.master},
                             {"--secret-file", &options.secret_file}}) {
    command.add_option(name, *value, "")->group("");
  }
  command.add_option("--index", options.index, "")->group("");
}

void AddPullPushFlags(CLI::App& command, PullPushOptions& options) {
  command
      .add_option("--mode", options.modes,
                  "pull_push, pooled (bags of 26 ids, summed by the servers), pull, push, hybrid "
                  "(a dense net over the sums of 26 rows makes "
                  "the gradients and is trained too, by DDP) or hybrid_pooled; default: all")
      ->check(CLI::IsMember({"pull_push", "pooled", "pull", "push", "hybrid", "hybrid_pooled"}))
      ->type_name("pull_push|pooled|pull|push|hybrid|hybrid_pooled");
  command
      .add_option("--clients", options.clients,
                  "processes that pull and push; default: 1 for pull and push, else 2")
      ->check(CLI::Range(1, 256));
  command.add_option("--servers", options.servers, "parameter servers")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--threads", options.threads, "worker threads of a server")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--rows", options.rows, "rows of the table")
      ->check(CLI::Range(2, 1 << 30))
      ->capture_default_str();
  command.add_option("--dim", options.dims, "numbers of a row; default: 64, 16 and 128")
      ->check(CLI::Range(1, 65536));
  command
      .add_option("--batch", options.batch,
                  "a client and step: distinct ids for pull and push, else samples of 26 ids")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--ids", options.ids,
                  "uniform or zipf (exponent 1.05); default: uniform, and zipf for dim 64")
      ->check(CLI::IsMember({"uniform", "zipf"}))
      ->type_name("uniform|zipf");
  command
      .add_option("--wire", options.wires,
                  "how rows and gradients travel; default: f32, and bf16 and int8 for uniform ids "
                  "and dim 64")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "int8"}))
      ->type_name("f32|bf16|f16|int8");
  command
      .add_option(
          "--path", options.paths,
          "how rows travel: grpc, shm (shared memory) or all; default: grpc, and shm for dim 64")
      ->check(CLI::IsMember({"grpc", "shm", "all"}))
      ->type_name("grpc|shm|all");
  command
      .add_option("--permits", options.permits,
                  "pull and push: steps of a client that may be under way; above 1 in the "
                  "consistency PERMIT, else in BSP")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--seconds", options.seconds, "about how long a repetition takes")
      ->check(CLI::Range(0.001, 600.0))
      ->capture_default_str();
  command.add_option("--steps", options.steps, "steps of a repetition, instead of --seconds")
      ->check(CLI::Range(1, 1 << 20));
  command.add_option("--repetitions", options.repetitions, "the median of so many is told")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--json", options.json, "write the figures as JSON")->type_name("FILE");
  AddMemberFlags(command, options.member);
}

void AddPullPush(CLI::App& bench, int* code) {
  const auto options = std::make_shared<PullPushOptions>();
  auto* command = bench.add_subcommand(
      "pull-push", "rows between clients and parameter servers, beside what raw streams carry");
  AddPullPushFlags(*command, *options);
  command->callback([=] { *code = BenchPullPush(*options); });
}

void AddSync(CLI::App& bench, int* code) {
  const auto options = std::make_shared<SyncOptions>();
  auto* command = bench.add_subcommand(
      "sync", "how long trainers take to synchronise weights, by a ring and by parameter servers");
  command->add_flag("--quick", options->quick, "fewer points, in at most 4 minutes");
  command
      ->add_option("--link", options->links,
                   "shm (shared memory), tcp (loopback), or a rate between members in network "
                   "namespaces of their own; default: shm, tcp, 1gbit and 100mbit")
      ->type_name("shm|tcp|RATE");
  command->add_option("--bytes", options->bytes, "points of these sizes alone; default: all");
  command->add_option("--json", options->json, "write the figures as JSON")->type_name("FILE");
  command->add_option("--report", options->report, "write a page for a browser, with charts")
      ->type_name("FILE");
  AddMemberFlags(*command, options->member);
  command->callback([=] { *code = BenchSync(*options); });
}

void AddPlan(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  const auto options = std::make_shared<PlanOptions>();
  auto* command = app.add_subcommand(
      "plan",
      "say for each table and dense parameter of a job if a ring or parameter servers "
      "synchronise it faster, and why");
  cli::AddJobFlags(*command, options->job_path, options->sets);
  command->add_option("--ps", options->servers, "parameter servers")->capture_default_str();
  command->add_option("--trainers", options->trainers, "replicas of the dense model")
      ->capture_default_str();
  command
      ->add_option("--link", options->link,
                   "between members. shm (shared memory) or tcp: all on one machine; a rate such "
                   "as 10gbit: a machine each")
      ->type_name("shm|tcp|RATE")
      ->capture_default_str();
  command->add_flag("--measure", options->measure,
                    "measure what moving and updating cost on this machine, in half a minute");
  command->add_option("--profile", options->profile, "take costs from this file")
      ->type_name("FILE");
  command->add_option("--write-profile", options->write_profile, "write the costs for --profile")
      ->type_name("FILE");
  command->add_option("--json", options->json, "write the plan as JSON")->type_name("FILE");
  command->callback([options, code, &kinds] { *code = PlanPlacement(*options, kinds); });
}

}  // namespace

void AddBenchCommands(CLI::App& app, const tasks::Kinds& kinds, int* code) {
  auto* bench =
      app.add_subcommand("bench", "measure how fast this machine runs what training is made of");
  bench->require_subcommand(1);
  AddStore(*bench, code);
  AddStep(*bench, kinds, code);
  AddPullPush(*bench, code);
  AddAllReduce(*bench, code);
  AddScheduleBench(*bench, code);
  AddSync(*bench, code);
  AddPlan(app, kinds, code);
}

}  // namespace tandem::bench
