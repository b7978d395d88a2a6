# Tests of the repository itself: style, scripts, the code in the README, programs that use the installed library.
set(scripts ${PROJECT_SOURCE_DIR}/scripts)

add_test(NAME style.format COMMAND ${scripts}/format --check)
add_test(NAME style.scripts COMMAND ${scripts}/check_scripts)
find_program(NPU_TRAIN_PYTHON python3)
if(NPU_TRAIN_PYTHON)
  add_test(NAME style.readme COMMAND ${NPU_TRAIN_PYTHON} ${scripts}/check_readme)
  add_test(NAME style.config_docs COMMAND ${NPU_TRAIN_PYTHON} ${scripts}/check_config_docs)
  add_test(NAME style.words COMMAND ${NPU_TRAIN_PYTHON} ${scripts}/check_words)
  add_test(NAME style.words_self_test COMMAND ${NPU_TRAIN_PYTHON} ${scripts}/check_words --self-test)
  add_test(NAME style.mutants COMMAND ${NPU_TRAIN_PYTHON} ${scripts}/mutants --check)
  add_test(NAME style.tests COMMAND ${NPU_TRAIN_PYTHON} ${scripts}/check_tests)
  add_test(NAME style.tests_self_test COMMAND ${NPU_TRAIN_PYTHON} ${PROJECT_SOURCE_DIR}/tests/architecture/check_tests_test.py)
  set_tests_properties(style.readme style.words style.words_self_test style.mutants style.tests PROPERTIES TIMEOUT 60)
endif()
add_test(NAME style.docs CONFIGURATIONS full COMMAND ${scripts}/docs)
set_tests_properties(style.docs PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
set_tests_properties(style.format style.scripts PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)

# Tests of the configuration `full` (scripts/test -C full, and CI), which compile many sources again.
if(NPU_TRAIN_BUILD_BOTH AND NPU_TRAIN_INSTALL AND CMAKE_BUILD_TYPE STREQUAL "Release")
  foreach(kind static shared)
    add_test(NAME consumer.${kind} CONFIGURATIONS full COMMAND ${scripts}/test_consumers ${kind} ${PROJECT_BINARY_DIR})
    set_tests_properties(consumer.${kind} PROPERTIES LABELS slow TIMEOUT 1500 RUN_SERIAL ON)
  endforeach()
  add_test(NAME consumer.package CONFIGURATIONS full COMMAND ${scripts}/test_consumers package ${PROJECT_BINARY_DIR})
  set_tests_properties(consumer.package PROPERTIES LABELS slow TIMEOUT 600 RUN_SERIAL ON)
  # Compiles the library a second time, without the tools.
  add_test(NAME consumer.subdirectory CONFIGURATIONS full COMMAND ${scripts}/test_consumers subdirectory ${PROJECT_BINARY_DIR})
  set_tests_properties(consumer.subdirectory PROPERTIES LABELS slow TIMEOUT 3000 RUN_SERIAL ON)
endif()

# All sources but the tests with the oldest supported libtorch, of which only the headers are downloaded.
add_test(NAME torch.oldest CONFIGURATIONS full COMMAND ${scripts}/check_torch)
set_tests_properties(torch.oldest PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 3000 RUN_SERIAL ON)

# The library under Clang, each public header by itself, and the tests of the vector kernels.
add_test(NAME compiler.clang CONFIGURATIONS full COMMAND ${scripts}/check_clang)
set_tests_properties(compiler.clang PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 3000 RUN_SERIAL ON)

# The CPU kernels for another processor architecture.
add_test(NAME compiler.aarch64 CONFIGURATIONS full COMMAND ${scripts}/check_aarch64)
set_tests_properties(compiler.aarch64 PROPERTIES LABELS slow SKIP_RETURN_CODE 77 TIMEOUT 3000 RUN_SERIAL ON)

# The rooms that read untrusted files, under the sanitizers.
add_test(NAME sanitizers.asan CONFIGURATIONS full COMMAND ${scripts}/sanitize asan core base io data)
set_tests_properties(sanitizers.asan PROPERTIES LABELS slow TIMEOUT 1500 RUN_SERIAL ON)
