// The source of a job's secret: --secret-file FILE ("-": standard input, as `launch` gives it to
// its roles), the environment variable TANDEM_SECRET, or nothing. The variable is wiped after
// reading, so /proc no longer shows it. Without a secret only addresses of this machine are
// allowed.
// Thread rule: the main thread, before other threads run.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "rpc/credentials.h"

namespace tandem::cli {

// The flags of a role that decide which credentials it has.
struct RoleAccess {
  std::string secret_file;
  // HOST:PORT; empty: not given.
  std::string master = "", listen = "", advertise = "";
};

// The secret for the roles that this process starts: the given one, or a new one. InvalidArgument
// if the given secret is not valid.
absl::StatusOr<rpc::Secret> SecretOfLaunch(const std::string& secret_file);

// The credentials that a role shows and demands. Without a secret, prints a warning on stderr under
// `name`. Then returns InvalidArgument if --master or --listen is not a loopback address.
absl::StatusOr<rpc::Credentials> CredentialsOfRole(const RoleAccess& access,
                                                   const std::string& name);

// True if only this machine can reach every address that HOST:PORT resolves to.
bool IsLoopback(const std::string& address);

}  // namespace tandem::cli
