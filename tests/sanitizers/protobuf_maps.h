// Included before any other header where ThreadSanitizer is on. Under ThreadSanitizer, Protobuf's
// maps have two members more than in Debian's library, which was built without.
// Hides ThreadSanitizer from the header of the maps alone. abseil_annotations.cc, report_test.cc
// and the standard library must see it.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/generated_message_reflection.h>
#include <google/protobuf/generated_message_util.h>
#include <google/protobuf/map_entry.h>
#include <google/protobuf/map_type_handler.h>
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
