/// The classes and functions that a pickle may name, and hints about the others.
#pragma once

#include <string>
#include <string_view>

namespace npu_train::detail {

/// `global` is a module and a name, separated by a blank, here and below.
bool is_known_global(std::string_view global);

/// How an object of a plain data class is read: as a dict of its items (Dict) or of its attributes (Attributes), as a list of its items
/// (List), or as an opaque value (Value).
enum class PlainForm { Dict, Attributes, List, Value };
bool is_plain_class(std::string_view global);
/// Requires is_plain_class().
PlainForm plain_form(std::string_view global);

/// Returns "FloatStorage" for "torch FloatStorage" and "torch.storage FloatStorage"; "" if it is not a supported storage.
std::string_view storage_of(std::string_view global);

/// True for a key of the metadata that torch_npu adds to a tensor: "npu_format_/ND", "base_sizes_/2/3/".
bool is_npu_metadata(std::string_view key);

/// Returns the end of the message about a refused name. Some names belong to harmless tensors that can be saved in another way.
std::string refused_global_hint(std::string_view global);

/// Makes a name from a file printable for messages, because it may contain any bytes.
std::string printable(std::string_view text);

}  // namespace npu_train::detail
