// Where a process has its job's secret from: --secret-file FILE ("-": standard input, as `launch` hands it to its roles), the environment
// variable TANDEM_SECRET, or nowhere. The variable is wiped when it has been read, so that /proc shows it no more. Without a secret only
// addresses of this machine are allowed.
// Thread rule: the main thread, before others run.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rpc/credentials.h"
#include "trainer/cli/run_options.h"

namespace tandem::cli {

// For the roles that this process starts: the secret that it was given, or a fresh one. InvalidArgument if the given one is no good.
absl::StatusOr<rpc::Secret> SecretOfLaunch(const RunOptions& options);

// What a role shows and asks for. Without a secret a line on stderr says so, under `name`; InvalidArgument if --master or --listen is then
// not a loopback address.
absl::StatusOr<rpc::Credentials> CredentialsOfRole(const RoleOptions& options, const std::string& name);

// Whether every address that HOST:PORT stands for is one that only this machine reaches.
bool IsLoopback(const std::string& address);

}  // namespace tandem::cli
