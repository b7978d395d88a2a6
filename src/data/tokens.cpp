#include "npu_train/data/tokens.hpp"

#include <ATen/ops/empty.h>

#include <glob.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <type_traits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"

namespace npu_train {
namespace {

constexpr const char* kTokens = "TokenFile";

// The file formats with a header.
struct TokenLayout {
  int32_t magic, version;
  int64_t width;
};
constexpr TokenLayout kTokenLayouts[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr int64_t kTokenHeader = 256 * sizeof(int32_t);
constexpr int32_t kTogether = 1885432946;  // precedes the digest of all files that were written together
constexpr int64_t kTogetherAt = 3 * sizeof(int32_t);
struct Together {
  int32_t magic;
  int32_t digest[2];
};
constexpr size_t kTokensAtOnce = size_t{1} << 20;  // per write call

template <class Token>
void widen(const std::vector<char>& bytes, int64_t count, int64_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, bytes.data() + i * sizeof(Token), sizeof(Token));
    out[i] = token;
  }
}

// Returns the kind of a file that is neither known nor plain tokens; "" for tokens. Headers of llm.c's formats begin with a date, such as
// 20240520, and a small version; as uint16 tokens, these numbers would be any id, an id from 305 to 320, the version and 0.
std::string other_format(const int32_t (&header)[3]) {
  std::string_view bytes(reinterpret_cast<const char*>(header), sizeof header);
  if (bytes.starts_with("\x93NUMPY")) return "a NumPy file (.npy)";
  if (bytes.starts_with("PK\x03\x04")) return "a ZIP archive, as PyTorch writes";
  if (bytes.starts_with("MMIDIDX")) return "the index of a Megatron data set";
  const int64_t year = header[0] / 10000, month = header[0] / 100 % 100, day = header[0] % 100;
  const bool date = year >= 2000 && year < 2100 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
  if (date && header[1] >= 0 && header[1] < 1000)
    return str_cat("a file with a header (magic ", header[0], ", version ", header[1], "), which is not one of token ids");
  return "";
}

// Returns a digest of the contents and of their boundaries; never 0.
template <class Tokens>
uint64_t digest_of(const std::vector<std::pair<std::string, Tokens>>& files) {
  Hasher out;
  for (const auto& [path, tokens] : files) {
    const uint64_t size = tokens.size();
    out.update(&size, sizeof(size));
    out.update(tokens.data(), tokens.size() * sizeof(tokens[0]));
  }
  return std::max<uint64_t>(1, out.digest());
}

// Writes numbers, or the bytes of a text. The caller commits the file. `together`: digest_of() the files that are written together; 0: the
// file is written alone.
template <class Tokens>
void write_tokens(AtomicFile& file, const Tokens& tokens, const TokenLayout& layout, uint64_t together = 0) {
  const auto path = file.path().string();
  check(tokens.size() < (size_t{1} << 31), ErrorKind::Usage, "save_tokens", path, ": ", tokens.size(), " tokens; allowed: fewer than 2^31");
  int32_t header[256] = {layout.magic, layout.version, static_cast<int32_t>(tokens.size())};
  if (together != 0) {
    Together mark{kTogether, {}};
    std::memcpy(mark.digest, &together, sizeof(together));
    std::memcpy(&header[3], &mark, sizeof(mark));
  }
  file.write(header, sizeof(header));
  for (size_t begin = 0; begin < tokens.size(); begin += kTokensAtOnce) {
    const auto end = std::min(begin + kTokensAtOnce, tokens.size());
    std::string bytes;
    for (size_t i = begin; i < end; ++i) {
      const uint64_t token = static_cast<std::make_unsigned_t<typename Tokens::value_type>>(tokens[i]);
      for (int64_t byte = 0; byte < layout.width; ++byte) bytes += static_cast<char>(token >> (8 * byte));
    }
    file.write(bytes);
  }
}

template <class Tokens>
void save_all(const std::vector<std::pair<std::string, Tokens>>& files, const TokenLayout& layout) {
  std::deque<AtomicFile> written;
  const auto together = files.size() > 1 ? digest_of(files) : 0;
  for (const auto& [path, tokens] : files) write_tokens(written.emplace_back(path), tokens, layout, together);
  for (auto& file : written) file.commit();
}

}  // namespace

TokenFile::TokenFile(const std::string& path, const std::string& dtype) : path_(path), file_(path) {
  check(dtype == "uint16" || dtype == "uint32", ErrorKind::Usage, kTokens, "dtype is '", dtype, "'; allowed: uint16, uint32");
  const auto bytes = static_cast<int64_t>(file_.size());
  int32_t header[3] = {};
  if (bytes >= static_cast<int64_t>(sizeof(header))) file_.read(0, header, sizeof(header));
  for (const auto& layout : kTokenLayouts) {
    if (header[0] != layout.magic) continue;
    check(header[1] == layout.version, ErrorKind::Data, kTokens, path, ": version ", header[1],
          " of the format of llm.c; allowed: ", layout.version, "; hint: make the file again with the scripts of llm.c");
    const int64_t expected = kTokenHeader + header[2] * layout.width;
    check(header[2] >= 0 && bytes == expected, ErrorKind::Data, kTokens, path, ": ", bytes, " bytes; a header with ", header[2],
          " tokens requires ", expected, " bytes; hint: the file is incomplete or damaged, download or make it again");
    begin_ = kTokenHeader, width_ = layout.width, size_ = header[2];
    Together mark{};
    file_.read(kTogetherAt, &mark, sizeof(mark));
    if (mark.magic == kTogether) std::memcpy(&written_with_, mark.digest, sizeof(written_with_));
    return;
  }
  const auto other = other_format(header);
  check(other.empty(), ErrorKind::Data, kTokens, path, ": this is ", other,
        "; allowed: token ids without a header, or with the header of llm.c: magic 20240520 (uint16) or 20240801 (uint32)");
  width_ = dtype == "uint16" ? 2 : 4;
  check(bytes % width_ == 0, ErrorKind::Data, kTokens, path, ": ", bytes, " bytes; tokens of ", dtype, " have ", width_,
        " bytes each; hint: the file is incomplete, or not a file of tokens");
  size_ = bytes / width_;
}

void save_tokens(const std::string& path, const std::vector<int64_t>& tokens) {
  save_tokens(std::vector<std::pair<std::string, std::vector<int64_t>>>{{path, tokens}});
}

void save_tokens(const std::vector<std::pair<std::string, std::vector<int64_t>>>& files) {
  int64_t largest = 0;
  for (const auto& [path, tokens] : files) {
    const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
    check(tokens.empty() || (*least >= 0 && *most <= 0xffffffff), ErrorKind::Usage, "save_tokens", path,
          ": a token is below 0 or above 2^32 - 1");
    if (!tokens.empty()) largest = std::max(largest, *most);
  }
  save_all(files, kTokenLayouts[largest <= 0xffff ? 0 : 1]);
}

void save_tokens(const std::string& path, std::string_view bytes) { save_tokens({{path, bytes}}); }

void save_tokens(const std::vector<std::pair<std::string, std::string_view>>& files) { save_all(files, kTokenLayouts[0]); }

void TokenFile::read(int64_t first, int64_t count, int64_t* out) const {
  std::vector<char> bytes(static_cast<size_t>(count * width_));
  file_.read(static_cast<uint64_t>(begin_ + first * width_), bytes.data(), bytes.size());
  width_ == 2 ? widen<uint16_t>(bytes, count, out) : widen<uint32_t>(bytes, count, out);
}

TokenDataset::TokenDataset(std::vector<TokenFile> files, int64_t context, int64_t vocab_size)
    : files_(std::make_shared<const std::vector<TokenFile>>(std::move(files))), context_(context), vocab_size_(vocab_size) {
  check(context_ >= 1 && vocab_size_ >= 0, ErrorKind::Usage, "tokens", "context is ", context_, " and vocab_size ", vocab_size_,
        "; context must be at least 1 and vocab_size at least 0");
  check(!files_->empty(), ErrorKind::Data, "tokens", "no files of tokens");
  for (const auto& file : *files_) {
    check(file.size() > context_, ErrorKind::Data, "tokens", file.path(), ": ", file.size(),
          " tokens; a sample has context + 1 = ", context_ + 1, " tokens; hint: reduce data.context, or join small files");
    size_ += (file.size() - 1) / context_;
    ends_.push_back(size_);
  }
}

TokenDataset::Place TokenDataset::place(int64_t index) const {
  const auto sample = first_ + index;
  const auto file = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
  return {&(*files_)[file], (sample - (file > 0 ? ends_[file - 1] : 0)) * context_};
}

Sample TokenDataset::get(int64_t index) const {
  check(index >= 0 && index < size_, ErrorKind::Usage, "tokens", "sample ", index, " of ", size_);
  const auto [file, first] = place(index);
  const at::Tensor tokens = at::empty({context_ + 1}, at::kLong);
  auto* ids = tokens.mutable_data_ptr<int64_t>();
  file->read(first, context_ + 1, ids);
  for (int64_t i = 0; vocab_size_ > 0 && i <= context_; ++i)
    check(ids[i] < vocab_size_, ErrorKind::Data, "tokens", file->path(), ": token ", first + i, " is ", ids[i], "; allowed: 0 to ",
          vocab_size_ - 1, " (data.vocab_size - 1); hint: use the vocabulary that made the file, or correct data.dtype");
  return {{{"input", tokens.narrow(0, 0, context_)}, {"target", tokens.narrow(0, 1, context_)}}, index};
}

DatasetInfo TokenDataset::info() const {
  DatasetInfo out;
  out.name = "tokens";
  out.shape = {context_};
  return out;
}

std::string TokenDataset::where(int64_t index) const {
  const auto [file, first] = place(index);
  return file->path() + ", tokens " + std::to_string(first) + " to " + std::to_string(first + context_);
}

std::shared_ptr<TokenDataset> TokenDataset::part(int64_t first, int64_t count) const {
  check(first >= 0 && count >= 0 && first <= size_ - count, ErrorKind::Usage, "tokens", "samples ", first, " to ", first + count, " of ",
        size_);
  auto out = std::make_shared<TokenDataset>(*this);
  out->first_ += first;
  out->size_ = count;
  return out;
}

std::vector<std::string> token_files(const std::string& pattern) {
  std::vector<std::string> out;
  std::error_code unreadable;
  if (std::filesystem::is_directory(pattern, unreadable)) {
    for (const auto& entry : std::filesystem::directory_iterator(pattern))
      if (entry.path().extension() == ".bin" && !entry.is_directory()) out.push_back(entry.path().string());
    std::sort(out.begin(), out.end());
  } else if (std::filesystem::exists(pattern, unreadable)) {
    out.push_back(pattern);  // an existing path is not a pattern, whatever characters it has
  } else {
    glob_t found{};
    if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
  }
  check(!out.empty(), ErrorKind::Data, "tokens", "'", pattern,
        "' names no file; allowed: a file of tokens, a folder with .bin files, or a pattern such as data/train_*.bin");
  return out;
}

const ConfigTable<TokensOptions>& TokensOptions::config_table() {
  using T = TokensOptions;
  static const auto table = data_fields(prefix_fields(
      ConfigTable<T>("data tokens")
          .field("train", &T::train, "training files of tokens: a file, a folder with .bin files, or a pattern such as data/train_*.bin")
          .field("val", &T::val, "validation files of tokens, in the same way; empty: val_fraction")
          .field("val_fraction", &T::val_fraction, "share of the training samples, at the end, that is used for validation instead",
                 between(0, 0.9))
          .field("context", &T::context, "tokens of a sample", between(1, 1 << 20))
          .field("vocab_size", &T::vocab_size, "a token of at least this is an error; 0: not checked", between(0, 1 << 24))
          .field("dtype", &T::dtype, "of files without a header", one_of({"uint16", "uint32"}))));
  return table;
}

std::vector<int64_t> byte_tokens(std::string_view text) {
  std::vector<int64_t> out;
  out.reserve(text.size() + 1);
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

std::string document_bytes(std::string_view text, const std::string& source) {
  const auto zero = text.find('\0');
  check(zero == std::string_view::npos, ErrorKind::Data, "tokenize", source, ": byte ", zero,
        " is 0, which no text contains; hint: the file is not text, or is text in UTF-16, which must be converted to UTF-8");
  std::string out(text);
  if (!out.empty()) out += static_cast<char>(kEndOfText);
  return out;
}

std::vector<int64_t> document_tokens(std::string_view text, const std::string& source) { return byte_tokens(document_bytes(text, source)); }

std::string text_of_bytes(const std::vector<int64_t>& tokens) {
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    check(tokens[i] >= 0 && tokens[i] < kByteVocabulary, ErrorKind::Data, "text_of_bytes", "token ", i, " is ", tokens[i],
          "; allowed: 0 to ", kByteVocabulary - 1, "; hint: the tokens are not those of the byte tokenizer");
    if (tokens[i] != kEndOfText) out += static_cast<char>(tokens[i]);
  }
  return out;
}

}  // namespace npu_train
