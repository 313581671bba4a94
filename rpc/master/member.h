// One process of a job, as its master and the other members know it.
#pragma once

#include <cstdint>
#include <string>

#include "proto/wire.pb.h"

namespace tandem::rpc {

struct Member {
  Role role = TRAINER;
  uint32_t rank = 0;  // within the role
  std::string host;   // host name
  int64_t pid = 0;
  std::string address;  // host:port it listens on
};

// "trainer-1", "ps-0": the name of a place in errors and logs.
std::string MemberName(Role role, uint32_t rank);

}  // namespace tandem::rpc
