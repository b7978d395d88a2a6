# Each folder of src/ and src/tools/ is a room: one OBJECT library, linked according to the table in cmake/rooms.txt. The rooms of src/ form
# the library npu_train; those of src/tools/ form npu_train_tools, which depends on npu_train.

set(NPU_TRAIN_WARNING_OPTIONS $<$<BOOL:${NPU_TRAIN_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 falsely reports overlaps, overruns and uninitialised reads in std::string and std::variant (its bugs 105651, 105329).
  list(APPEND NPU_TRAIN_WARNING_OPTIONS -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
    -Wno-maybe-uninitialized)
endif()

add_library(npu_train_flags INTERFACE)
target_compile_features(npu_train_flags INTERFACE cxx_std_20)
target_compile_options(npu_train_flags INTERFACE -Wall -Wextra -Wno-unused-parameter
  $<IF:$<BOOL:${NPU_TRAIN_OPENMP}>,-fopenmp,-fopenmp-simd> ${NPU_TRAIN_WARNING_OPTIONS}
  # By default GCC's garbage collection takes a fifth of the compilation of a source that includes libtorch.
  $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=1000;--param=ggc-min-heapsize=4000000>)
# libtorch is built with NDEBUG, and without it a class in its headers (RecordFunction) has a different layout. Therefore our sources define
# it in every configuration. They contain no assert(), and a program that uses the library keeps its own setting.
target_compile_definitions(npu_train_flags INTERFACE $<$<NOT:$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:NDEBUG>)
target_include_directories(npu_train_flags INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/plugins ${PROJECT_BINARY_DIR}/generated)
target_include_directories(npu_train_flags SYSTEM INTERFACE $<$<BOOL:${NPU_TRAIN_IMAGES}>:${NPU_TRAIN_SPNG_INCLUDE}> ${NPU_TRAIN_XXHASH_INCLUDE}
  ${NPU_TRAIN_HWY_INCLUDE})
# The same soname as the runtime that libtorch_cpu loads.
target_link_options(npu_train_flags INTERFACE $<$<BOOL:${NPU_TRAIN_OPENMP}>:-fopenmp>)
target_link_libraries(npu_train_flags INTERFACE torch yaml-cpp nlohmann_json::nlohmann_json
  ${NPU_TRAIN_IMAGE_LIBRARIES} ${NPU_TRAIN_HWY_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS})

configure_file(${PROJECT_SOURCE_DIR}/include/npu_train/core/version.hpp.in
  ${PROJECT_BINARY_DIR}/generated/npu_train/core/version.hpp @ONLY)

# npu_train_room_closure(OUT ROOM): ROOM and all rooms below it in the table.
function(npu_train_room_closure out room)
  set(todo ${room})
  set(done "")
  while(todo)
    list(POP_FRONT todo next)
    if(NOT next IN_LIST done)
      list(APPEND done ${next})
      list(APPEND todo ${NPU_TRAIN_MAY_INCLUDE_${next}})
    endif()
  endwhile()
  set(${out} ${done} PARENT_SCOPE)
endfunction()

# npu_train_sum_rooms(TARGET ROOM...): the objects of the rooms and of all rooms below them.
function(npu_train_sum_rooms target)
  set(all "")
  foreach(room IN LISTS ARGN)
    npu_train_room_closure(closure ${room})
    list(APPEND all ${closure})
  endforeach()
  list(REMOVE_DUPLICATES all)
  npu_train_add_objects(${target} ${all})
endfunction()

# npu_train_add_spdlog(): src/core/spdlog_writers.cpp, which cannot be compiled where libtorch's headers are found: they bring another fmt.
function(npu_train_add_spdlog)
  add_library(npu_train_spdlog OBJECT ${PROJECT_SOURCE_DIR}/src/core/spdlog_writers.cpp)
  set_target_properties(npu_train_spdlog PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(npu_train_spdlog PRIVATE cxx_std_20)
  target_compile_options(npu_train_spdlog PRIVATE -Wall -Wextra ${NPU_TRAIN_WARNING_OPTIONS})
  target_include_directories(npu_train_spdlog PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(npu_train_spdlog SYSTEM PRIVATE ${NPU_TRAIN_SPDLOG_INCLUDE})
endfunction()

# npu_train_add_objects(TARGET ROOM...): the objects of these rooms and no others.
function(npu_train_add_objects target)
  foreach(room IN LISTS ARGN)
    npu_train_objects_of(targets ${room})
    if(room STREQUAL "core")
      list(APPEND targets npu_train_spdlog)
    elseif(room STREQUAL "tools/commands")
      list(APPEND targets npu_train_tools_commands_train_app)
    endif()
    foreach(objects IN LISTS targets)
      if(TARGET ${objects})
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
      endif()
    endforeach()
  endforeach()
endfunction()

# npu_train_objects_of(OUT ROOM): the target of a room: npu_train_io, npu_train_tools_align.
function(npu_train_objects_of out room)
  string(REPLACE "/" "_" name ${room})
  set(${out} npu_train_${name} PARENT_SCOPE)
endfunction()

# npu_train_link_rooms(TARGET ROOM...): a program of these rooms alone.
function(npu_train_link_rooms target)
  npu_train_sum_rooms(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE npu_train_flags)
endfunction()

# npu_train_compile_together(TARGET ROOM): compiles the sources of a target in batches and, from `device` upwards, with one precompiled
# header of libtorch's most expensive headers, because the headers of a source take more time than the source itself: four batches of 6
# sources take 1.6 times as long as one of 24, and a batch of few sources costs 10 s for its headers alone.
# -fPIC: the precompiled header is compiled with it, and GCC would reject it with the -fPIE of a program. -fpch-preprocess: ccache needs it
# for precompiled headers. -fno-pch-timestamp: the same header produces the same file, which ccache then recognises.
function(npu_train_compile_together target room)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${NPU_TRAIN_UNITY} UNITY_BUILD_BATCH_SIZE 32)
  npu_train_room_closure(closure ${room})
  if("device" IN_LIST closure)
    target_precompile_headers(${target} REUSE_FROM npu_train_pch)
    target_compile_options(${target} PRIVATE -fPIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
      "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endfunction()

# npu_train_embed_facts(ROOM): every table src/ROOM/facts/NAME.tsv becomes a text npu_train::facts::NAME of "ROOM/facts/NAME.hpp", so that
# a program needs no data files.
function(npu_train_embed_facts room)
  file(GLOB tables CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/facts/*.tsv)
  foreach(table IN LISTS tables)
    get_filename_component(NPU_TRAIN_FACTS_NAME ${table} NAME_WE)
    file(READ ${table} NPU_TRAIN_FACTS_TEXT)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/facts.hpp.in
      ${PROJECT_BINARY_DIR}/generated/${room}/facts/${NPU_TRAIN_FACTS_NAME}.hpp @ONLY)
  endforeach()
endfunction()

function(npu_train_add_room room)
  npu_train_embed_facts(${room})
  if(room STREQUAL "models")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/*.cpp)
  else()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.cpp)
  endif()
  # at::cuda needs CUDA's headers and libraries, which come with a libtorch that has CUDA
  if(TARGET torch_cuda)
    list(FILTER sources EXCLUDE REGEX "/no_cuda_graph\\.cpp$")
    # Compiled separately: if it shares a batch with other sources, GCC assumes that CUDA's allocator is the only one and calls the CUDA
    # runtime, which is not linked.
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/device/cuda/cuda_graph.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda_graph\\.cpp$")
  endif()
  if(NPU_TRAIN_IMAGES)
    list(FILTER sources EXCLUDE REGEX "/no_(image_codec|deflate)\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/(image_codec|jpeg|deflate)\\.cpp$")
  endif()
  if(NPU_TRAIN_DIST)
    list(FILTER sources EXCLUDE REGEX "/no_c10d\\.cpp$")
    if(NPU_TRAIN_NCCL_INCLUDE AND TARGET torch_cuda)
      list(FILTER sources EXCLUDE REGEX "/no_nccl\\.cpp$")
      set_source_files_properties(${PROJECT_SOURCE_DIR}/src/dist/nccl.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
        COMPILE_DEFINITIONS USE_C10D_NCCL INCLUDE_DIRECTORIES ${NPU_TRAIN_NCCL_INCLUDE})
    else()
      list(FILTER sources EXCLUDE REGEX "/nccl\\.cpp$")
    endif()
  else()
    list(FILTER sources EXCLUDE REGEX "/(c10d_group|duplex_gloo|rendezvous|store_server|nccl|no_nccl|hccl)\\.cpp$")
  endif()
  list(FILTER sources EXCLUDE REGEX "/spdlog_writers\\.cpp$")
  # Kernels of several instruction sets (x.cpp with an x.inc) must produce the same bits with each, so the compiler must not fuse
  # multiplications and additions. With a precompiled header, GCC would fuse them nevertheless: a function with an instruction set of its
  # own then has the options that the header was compiled with.
  file(GLOB vector_code CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.inc)
  list(TRANSFORM vector_code REPLACE "\\.inc$" ".cpp")
  set_source_files_properties(${vector_code} PROPERTIES COMPILE_OPTIONS -ffp-contract=off SKIP_PRECOMPILE_HEADERS ON
    SKIP_UNITY_BUILD_INCLUSION ON)
  # libtorch's wheel lacks the headers of Gloo that c10d includes.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/dist/c10d_group.cpp ${PROJECT_SOURCE_DIR}/src/dist/duplex_gloo.cpp
    ${PROJECT_SOURCE_DIR}/src/dist/rendezvous.cpp PROPERTIES
    INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/src/dist/gloo_declarations SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT sources)
    return()
  endif()
  npu_train_objects_of(objects ${room})
  if(room STREQUAL "tools/commands")
    # The sources of train_app are a target of their own, so that train_app is built without npu_tool.
    set(of_train_app ${sources})
    list(FILTER of_train_app INCLUDE REGEX "/train_app/")
    list(REMOVE_ITEM sources ${of_train_app})
    npu_train_add_room_objects(${objects}_train_app ${room} ${of_train_app})
  endif()
  npu_train_add_room_objects(${objects} ${room} ${sources})
endfunction()

# npu_train_add_room_objects(TARGET ROOM SOURCE...): an OBJECT library with sources of the room. Each function has a section of its own, so
# that a program that links the static library contains only the functions that it uses, although a batch of sources is one object.
function(npu_train_add_room_objects target room)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PRIVATE npu_train_flags)
  target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  if(room MATCHES "^tools/" AND NOT room STREQUAL "tools/align") # whose comparison of dumps is bound by its speed
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(room STREQUAL "tools/commands")
    target_link_libraries(${target} PRIVATE CLI11::CLI11)
  elseif(room STREQUAL "export")
    target_include_directories(${target} SYSTEM PRIVATE ${NPU_TRAIN_PROTOZERO_INCLUDE})
  elseif(room STREQUAL "models") # which is not in src/
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  endif()
  npu_train_compile_together(${target} ${room})
endfunction()

# npu_train_add_library(TARGET NAME KIND ROOM...): a library of these rooms, which programs link as npu_train::NAME. If KIND is empty,
# BUILD_SHARED_LIBS selects it.
function(npu_train_add_library target name kind)
  add_library(${target} ${kind})
  npu_train_add_objects(${target} ${ARGN})
  set(file npu_train)
  if(NOT name STREQUAL "npu_train")
    set(file npu_train_${name})
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${file} EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "$ORIGIN;$<TARGET_FILE_DIR:torch>")
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC torch PRIVATE $<BUILD_INTERFACE:npu_train_flags>)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_link_options(${target} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  endif()
  if(type STREQUAL "STATIC_LIBRARY")
    target_link_libraries(${target} INTERFACE $<INSTALL_INTERFACE:${NPU_TRAIN_STATIC_NEEDS}>)
    target_link_options(${target} INTERFACE -Wl,--gc-sections $<INSTALL_INTERFACE:$<$<BOOL:${NPU_TRAIN_OPENMP}>:-fopenmp>>)
  endif()
endfunction()

# npu_train_add_libraries(SUFFIX KIND): the libraries npu_train and npu_train_tools, both of this kind.
function(npu_train_add_libraries suffix kind)
  set(tools ${NPU_TRAIN_ROOMS})
  list(FILTER tools INCLUDE REGEX "^tools/")
  set(rooms ${NPU_TRAIN_ROOMS})
  list(FILTER rooms EXCLUDE REGEX "^tools/")
  npu_train_add_library(npu_train${suffix} npu_train "${kind}" ${rooms})
  if(NPU_TRAIN_TOOLS)
    npu_train_add_library(npu_train_tools${suffix} tools "${kind}" ${tools})
    target_link_libraries(npu_train_tools${suffix} PUBLIC npu_train${suffix})
  endif()
endfunction()

macro(npu_train_add_rooms)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/rooms.txt)
  add_library(npu_train_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  set_target_properties(npu_train_pch PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(npu_train_pch PRIVATE npu_train_flags)
  target_precompile_headers(npu_train_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.hpp)
  target_compile_options(npu_train_pch PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

  file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/rooms.txt lines REGEX "^[a-z/]+:")
  set(NPU_TRAIN_ROOMS "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([a-z/]+):(.*)$" _ "${line}")
    set(room ${CMAKE_MATCH_1})
    string(STRIP "${CMAKE_MATCH_2}" allowed)
    string(REPLACE " " ";" NPU_TRAIN_MAY_INCLUDE_${room} "${allowed}")
    list(APPEND NPU_TRAIN_ROOMS ${room})
  endforeach()
  if(NOT NPU_TRAIN_TOOLS)
    list(FILTER NPU_TRAIN_ROOMS EXCLUDE REGEX "^tools/")
  endif()
  npu_train_add_spdlog()
  foreach(room IN LISTS NPU_TRAIN_ROOMS)
    npu_train_add_room(${room})
  endforeach()

  npu_train_add_libraries("" "")
  add_library(npu_train::npu_train ALIAS npu_train)
  if(NPU_TRAIN_TOOLS)
    add_library(npu_train::tools ALIAS npu_train_tools)
  endif()
  get_target_property(NPU_TRAIN_KIND npu_train TYPE)
  if(NPU_TRAIN_BUILD_BOTH)
    if(NPU_TRAIN_KIND STREQUAL "SHARED_LIBRARY")
      npu_train_add_libraries(_other STATIC)
    else()
      npu_train_add_libraries(_other SHARED)
    endif()
  endif()
endmacro()
