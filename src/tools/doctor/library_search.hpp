// Finds where the loader would find a shared library, without loading it.
#pragma once

#include <string>
#include <vector>

#include "npu_train/tools/doctor/checks.hpp"
#include "tools/doctor/elf.hpp"

namespace npu_train::detail {

// A library that was not found, and the library that needs it.
struct MissingLibrary {
  std::string name, needed_by;
};

class LibrarySearch {
 public:
  // `loaded`: folders of libraries that the process has already loaded (libtorch's); libraries in them are found by name.
  LibrarySearch(const HostView& host, const std::string& machine, std::vector<std::string> loaded);

  // Returns the path of library `name`, which the library at `from` with the dynamic section `facts` needs; "" if not found. Searches
  // DT_RPATH if there is no DT_RUNPATH, then LD_LIBRARY_PATH, DT_RUNPATH, and the folders of ld.so.conf and of the system.
  std::string find(const std::string& name, const std::string& from, const ElfFacts& facts) const;
  std::string find(const std::string& name) const { return find(name, "/", {}); }

  // Returns all libraries that `path` and its dependencies need and that are missing. Reads at most 400 files.
  std::vector<MissingLibrary> missing(const std::string& path) const;

 private:
  const HostView& host_;
  std::vector<std::string> loaded_, first_, last_;
};

}  // namespace npu_train::detail
