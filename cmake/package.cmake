# cpack --config build/CPackConfig.cmake -G TGZ (or DEB): the complete installation as a .tar.gz or a Debian package, from what is built. libtorch
# is not in it.
set(CPACK_PACKAGE_NAME npu-train)
set(CPACK_PACKAGE_VENDOR "npu_train")
set(CPACK_PACKAGE_CONTACT "the developers of npu_train")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Embeddable mixed-precision training for C++ on libtorch")
set(CPACK_PACKAGE_FILE_NAME npu-train-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR TGZ)
set(CPACK_VERBATIM_VARIABLES ON)
find_program(NPU_TRAIN_DPKG_SHLIBDEPS dpkg-shlibdeps)
if(NPU_TRAIN_DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
  # Finds the packages of the system's libraries. libtorch belongs to no package.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${NPU_TRAIN_TORCH_PREFIX}/lib)
  if(NPU_TRAIN_TOOLS AND NPU_TRAIN_SERVE)
    set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libmicrohttpd12) # npu_tool serve loads it
  endif()
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
endif()
include(CPack)
