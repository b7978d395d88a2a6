# Everything that `cmake --install` copies; scripts/setup builds this target.
add_custom_target(npu_train_programs DEPENDS npu_train)

# npu_train_program(TARGET): builds a program into bin/ of the build folder. The installed program finds the libtorch of the build.
# (INSTALL_RPATH_USE_LINK_PATH would omit a libtorch inside the source folder, such as that in .venv.)
function(npu_train_program target)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
    INSTALL_RPATH "$ORIGIN/../lib;$<TARGET_FILE_DIR:torch>")
  add_dependencies(npu_train_programs ${target})
  if(NPU_TRAIN_INSTALL)
    install(TARGETS ${target} RUNTIME DESTINATION bin COMPONENT programs)
  endif()
endfunction()

# npu_train_plugin(TARGET): builds a plugin, which the library loads when a run requests it, into lib/npu_train of the build folder. The
# library searches its own run path and, if it is static, that of the program. The programs of this project do not get such a run path: they
# find the folder next to bin/, and they would keep the path when they are installed.
function(npu_train_plugin target)
  set_target_properties(${target} PROPERTIES PREFIX "lib" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/npu_train
    CXX_VISIBILITY_PRESET hidden)
  target_link_libraries(${target} PRIVATE npu_train_flags)
  set_property(TARGET npu_train APPEND PROPERTY BUILD_RPATH $<TARGET_FILE_DIR:${target}>)
  if(NPU_TRAIN_KIND STREQUAL "STATIC_LIBRARY" AND NOT PROJECT_IS_TOP_LEVEL)
    target_link_options(npu_train INTERFACE $<BUILD_INTERFACE:LINKER:-rpath,$<TARGET_FILE_DIR:${target}>>)
  endif()
  add_dependencies(npu_train_programs ${target})
  if(NPU_TRAIN_INSTALL)
    install(TARGETS ${target} LIBRARY DESTINATION lib/npu_train COMPONENT programs)
  endif()
endfunction()

# Components: development (headers, package files), static, shared, programs (with the configs). A prefix may contain both kinds of library.
function(npu_train_install_libraries suffix)
  set(libraries npu_train${suffix})
  foreach(name IN LISTS NPU_TRAIN_TOOL_LIBRARIES)
    list(APPEND libraries npu_train_${name}${suffix})
  endforeach()
  add_dependencies(npu_train_programs ${libraries})
  get_target_property(type npu_train${suffix} TYPE)
  string(TOLOWER "${type}" kind)
  string(REPLACE "_library" "" kind "${kind}")
  install(TARGETS ${libraries} EXPORT npu_train-${kind} ARCHIVE DESTINATION lib COMPONENT ${kind} LIBRARY DESTINATION lib COMPONENT ${kind})
  install(EXPORT npu_train-${kind} NAMESPACE npu_train:: FILE npu_train-${kind}.cmake DESTINATION lib/cmake/npu_train COMPONENT ${kind})
endfunction()

function(npu_train_install_package)
  include(CMakePackageConfigHelpers)
  list(TRANSFORM NPU_TRAIN_STATIC_NEEDS PREPEND -l OUTPUT_VARIABLE needs)
  list(JOIN needs " " NPU_TRAIN_PC_PRIVATE)
  if(NPU_TRAIN_OPENMP)
    string(APPEND NPU_TRAIN_PC_PRIVATE " -fopenmp")
  endif()
  npu_train_install_libraries("")
  if(TARGET npu_train_other)
    npu_train_install_libraries(_other)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/npu_train ${PROJECT_BINARY_DIR}/generated/npu_train DESTINATION include
    COMPONENT development FILES_MATCHING PATTERN "*.hpp")
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/npu_trainConfig.cmake.in ${PROJECT_BINARY_DIR}/npu_trainConfig.cmake
    INSTALL_DESTINATION lib/cmake/npu_train NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/npu_trainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/npu_trainConfig.cmake ${PROJECT_BINARY_DIR}/npu_trainConfigVersion.cmake
    DESTINATION lib/cmake/npu_train COMPONENT development)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/npu_train.pc.in ${PROJECT_BINARY_DIR}/npu_train.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/npu_train.pc DESTINATION lib/pkgconfig COMPONENT development)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION share/npu_train COMPONENT programs FILES_MATCHING PATTERN "*.yaml")
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/npu_train COMPONENT development)
endfunction()
