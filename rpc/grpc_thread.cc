#include "rpc/grpc_thread.h"

namespace tandem::rpc {
namespace {
thread_local int reaction_depth = 0;  // reactions of one call may start those of another
}  // namespace

ReactionScope::ReactionScope() { ++reaction_depth; }
ReactionScope::~ReactionScope() { --reaction_depth; }

bool InReaction() { return reaction_depth > 0; }

}  // namespace tandem::rpc
