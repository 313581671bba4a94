// One process of a job, as the master and the other members know it.
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {
enum Role : int;  // proto/wire.pb.h
}

namespace tandem::rpc {

struct Member {
  Role role{};
  uint32_t rank = 0;  // within the role
  std::string host;   // host name
  int64_t pid = 0;
  std::string address;  // host:port that the member listens on
};

// The member's name in errors and logs: "trainer-1", "ps-0".
std::string MemberName(Role role, uint32_t rank);

}  // namespace tandem::rpc
