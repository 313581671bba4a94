# Writes OUT, a source file that knows the commit of the checkout SOURCE, if the commit has changed. Run at every build.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=* OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)
endif()
set(text "// Made by commit.cmake.\nnamespace tandem::cli {\nextern const char kCommit[];\nconst char kCommit[] = \"${commit}\";\n}  // namespace tandem::cli\n")
set(before "")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUT} "${text}")
endif()
