# Each folder of src/ and src/tools/ is a room: one OBJECT library, linked according to the table in cmake/rooms.txt. The rooms of src/ form
# the library npu_train; those of src/tools/ form npu_train_tools, which depends on npu_train. What needs no libtorch is in addition the
# library npu_train_check, with which a program explains why a machine does not train.

set(NPU_TRAIN_WARNING_OPTIONS $<$<BOOL:${NPU_TRAIN_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 falsely reports overlaps, overruns and uninitialised reads in std::string and std::variant (its bugs 105651, 105329).
  list(APPEND NPU_TRAIN_WARNING_OPTIONS -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
    -Wno-maybe-uninitialized)
endif()

# npu_train_plain_flags: for sources without libtorch. npu_train_flags: with libtorch, OpenMP, images and vector kernels.
foreach(flags IN ITEMS npu_train_plain_flags npu_train_flags)
  set(openmp "")
  set(includes ${NPU_TRAIN_XXHASH_INCLUDE})
  set(links yaml-cpp nlohmann_json::nlohmann_json)
  if(flags STREQUAL "npu_train_flags")
    set(openmp $<IF:$<BOOL:${NPU_TRAIN_OPENMP}>,-fopenmp,-fopenmp-simd>)
    set(includes $<$<BOOL:${NPU_TRAIN_IMAGES}>:${NPU_TRAIN_SPNG_INCLUDE}> ${includes} ${NPU_TRAIN_HWY_INCLUDE})
    set(links torch ${links} ${NPU_TRAIN_IMAGE_LIBRARIES} ${NPU_TRAIN_HWY_LIBRARY})
  endif()
  add_library(${flags} INTERFACE)
  target_compile_features(${flags} INTERFACE cxx_std_20)
  target_compile_options(${flags} INTERFACE -Wall -Wextra -Wno-unused-parameter ${openmp} ${NPU_TRAIN_WARNING_OPTIONS}
    # By default GCC's garbage collection takes a fifth of the compilation of a source that includes libtorch.
    $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=1000;--param=ggc-min-heapsize=4000000>)
  # libtorch is built with NDEBUG, and without it a class in its headers (RecordFunction) has a different layout. Therefore our sources
  # define it in every configuration. They contain no assert(), and a program that uses the library keeps its own setting.
  target_compile_definitions(${flags} INTERFACE $<$<NOT:$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:NDEBUG>)
  target_include_directories(${flags} INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/plugins ${PROJECT_BINARY_DIR}/generated)
  target_include_directories(${flags} SYSTEM INTERFACE ${includes})
  target_link_libraries(${flags} INTERFACE ${links} Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
# The same soname as the runtime that libtorch_cpu loads.
target_link_options(npu_train_flags INTERFACE $<$<BOOL:${NPU_TRAIN_OPENMP}>:-fopenmp>)

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

# npu_train_add_objects(TARGET ROOM...): the objects of these rooms, with their parts, and no others. A part alone is "io/tensors".
function(npu_train_add_objects target)
  foreach(room IN LISTS ARGN)
    set(parts ${NPU_TRAIN_PARTS})
    list(FILTER parts INCLUDE REGEX "^${room}/")
    foreach(part IN ITEMS ${room} LISTS parts)
      npu_train_objects_of(objects ${part})
      if(TARGET ${objects})
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
      endif()
    endforeach()
    if(room STREQUAL "core")
      target_sources(${target} PRIVATE $<TARGET_OBJECTS:npu_train_spdlog>)
    endif()
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

# npu_train_compile_together(TARGET ROOM [PART]): compiles the sources of a target in batches and, from `device` upwards, with one
# precompiled header of libtorch's most expensive headers (unless PART is without libtorch), because the headers of a source take more time
# than the source itself: four batches of 6 sources take 1.6 times as long as one of 24, and a batch of few sources costs 10 s for its
# headers alone.
# -fPIC: the precompiled header is compiled with it, and GCC would reject it with the -fPIE of a program. -fpch-preprocess: ccache needs it
# for precompiled headers. -fno-pch-timestamp: the same header produces the same file, which ccache then recognises.
function(npu_train_compile_together target room)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${NPU_TRAIN_UNITY} UNITY_BUILD_BATCH_SIZE 32)
  npu_train_room_closure(closure ${room})
  if("device" IN_LIST closure AND NOT "${ARGN}" IN_LIST NPU_TRAIN_PLAIN)
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
  foreach(part IN LISTS NPU_TRAIN_PARTS)
    if(part MATCHES "^${room}/")
      set(of_part ${sources})
      list(FILTER of_part INCLUDE REGEX "/src/${part}/")
      list(REMOVE_ITEM sources ${of_part})
      npu_train_add_room_objects(${part} ${room} ${of_part})
    endif()
  endforeach()
  if(sources)
    npu_train_add_room_objects(${room} ${room} ${sources})
  endif()
endfunction()

# npu_train_add_room_objects(PART ROOM SOURCE...): an OBJECT library with sources of the room, or of a part of it. Each function has a
# section of its own, so that a program that links the static library contains only the functions that it uses, although a batch of sources
# is one object.
function(npu_train_add_room_objects part room)
  npu_train_objects_of(target ${part})
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(part IN_LIST NPU_TRAIN_PLAIN)
    target_link_libraries(${target} PRIVATE npu_train_plain_flags)
  else()
    target_link_libraries(${target} PRIVATE npu_train_flags)
  endif()
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
  npu_train_compile_together(${target} ${room} ${part})
endfunction()

# npu_train_add_library(TARGET NAME KIND FLAGS ROOM...): a library of these rooms, which programs link as npu_train::NAME. If KIND is empty,
# BUILD_SHARED_LIBS selects it. FLAGS is what it is linked with: npu_train_flags, or npu_train_plain_flags without libtorch.
function(npu_train_add_library target name kind flags)
  add_library(${target} ${kind})
  npu_train_add_objects(${target} ${ARGN})
  set(file npu_train)
  if(NOT name STREQUAL "npu_train")
    set(file npu_train_${name})
  endif()
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${file} EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${flags}>)
  set(needs ${NPU_TRAIN_PLAIN_NEEDS})
  if(flags STREQUAL "npu_train_flags")
    target_link_libraries(${target} PUBLIC torch)
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN;$<TARGET_FILE_DIR:torch>")
    set(needs ${NPU_TRAIN_STATIC_NEEDS})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    target_link_options(${target} PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exports.map)
  endif()
  if(type STREQUAL "STATIC_LIBRARY")
    target_link_libraries(${target} INTERFACE $<INSTALL_INTERFACE:${needs}>)
    target_link_options(${target} INTERFACE -Wl,--gc-sections)
    if(NPU_TRAIN_OPENMP AND flags STREQUAL "npu_train_flags")
      target_link_options(${target} INTERFACE $<INSTALL_INTERFACE:-fopenmp>)
    endif()
  endif()
endfunction()

# npu_train_add_libraries(SUFFIX KIND): the libraries npu_train, npu_train_tools and npu_train_check, all of this kind.
function(npu_train_add_libraries suffix kind)
  set(tools ${NPU_TRAIN_ROOMS})
  list(FILTER tools INCLUDE REGEX "^tools/")
  set(rooms ${NPU_TRAIN_ROOMS})
  list(FILTER rooms EXCLUDE REGEX "^tools/")
  npu_train_add_library(npu_train${suffix} npu_train "${kind}" npu_train_flags ${rooms})
  if(NPU_TRAIN_TOOLS)
    npu_train_add_library(npu_train_tools${suffix} tools "${kind}" npu_train_flags ${tools})
    target_link_libraries(npu_train_tools${suffix} PUBLIC npu_train${suffix})
    set(plain ${NPU_TRAIN_PLAIN})
    list(FILTER plain EXCLUDE REGEX "^tools/commands/")
    set(NPU_TRAIN_PARTS "") # without io/tensors
    npu_train_add_library(npu_train_check${suffix} check "${kind}" npu_train_plain_flags ${plain})
  endif()
endfunction()

macro(npu_train_add_rooms)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/rooms.txt)
  add_library(npu_train_pch OBJECT ${PROJECT_SOURCE_DIR}/cmake/pch.cpp)
  set_target_properties(npu_train_pch PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(npu_train_pch PRIVATE npu_train_flags)
  target_precompile_headers(npu_train_pch PRIVATE ${PROJECT_SOURCE_DIR}/cmake/pch.hpp)
  target_compile_options(npu_train_pch PRIVATE "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")

  foreach(list IN ITEMS PARTS PLAIN)
    string(TOLOWER ${list} word)
    file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/rooms.txt line REGEX "^\\* ${word}:")
    string(REGEX REPLACE "^[^:]*: *" "" line "${line}")
    string(REPLACE " " ";" NPU_TRAIN_${list} "${line}")
  endforeach()
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
    add_library(npu_train::check ALIAS npu_train_check)
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
