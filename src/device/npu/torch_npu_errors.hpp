// Messages about a torch_npu that is missing or cannot be loaded: what is wrong, and what to install.
#pragma once

#include <string>

namespace npu_train::detail {

// Returns the minor version of libtorch ("2.13"), which torch_npu must have, too.
std::string torch_minor();

// Returns a sentence for users that names the torch_npu and the CANN to install, for the environment of the interpreter `python`.
std::string what_to_install(const std::string& python = "python3");

// Throws Error(Device).
[[noreturn]] void fail_npu(const std::string& what, const std::string& hint);

// Error(Device) if the version `version` of the torch_npu at `path` does not fit libtorch.
void check_torch_npu_version(const std::string& path, const std::string& version);

// Throws Error(Device) that explains `error`, the loader's text for the library at `path`.
[[noreturn]] void explain_loading(const std::string& path, const std::string& error);

}  // namespace npu_train::detail
