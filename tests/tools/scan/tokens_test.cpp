// Compares our tokenizer of Python with Python's own.
#include "testing.hpp"

#include "tools/scan/tokens.hpp"

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "npu_train/core/process.hpp"
#include "npu_train/io/file.hpp"
#include "only_if.hpp"
#include "tools/scan/project_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

// Prints "path begin end" of each name (N) and string (T), in bytes. From Python 3.12 on, an f-string is a sequence of tokens.
constexpr const char* kPythonsOwn = R"PY(
import io, sys, token, tokenize
for number, path in enumerate(sys.argv[1:]):
    data = open(path, 'rb').read()
    lines = data.split(b'\n')
    starts = [0]
    for line in lines: starts.append(starts[-1] + len(line) + 1)
    at = lambda place: starts[place[0] - 1] + len(lines[place[0] - 1].decode()[:place[1]].encode())
    nested = []
    for t in tokenize.tokenize(io.BytesIO(data).readline):
        kind = token.tok_name[t.type]
        if kind.endswith('STRING_START'): nested.append(at(t.start))
        elif kind.endswith('STRING_END'):
            begin = nested.pop()
            if not nested: print(number, 'T', begin, at(t.end))
        elif kind in ('NAME', 'STRING') and not nested: print(number, kind[0].replace('S', 'T'), at(t.start), at(t.end))
)PY";

// Code that is easily misread.
constexpr const char* kHard = R"PY(x = 'a' "b\"c" r'\'' u"d" b'\'' Rb"e" f'{g!r:>{h}}' rF"{i:'>10}{j['k']}" F"""{
l} ' 'm' \"""" + """n'" \""" "" """ ''
o = 0x1F + 1_000.5e-3j + 1e+5 + 0b1_0 + .5 + 1.
p = q if r else lambda s, *t, **u: (v := w)  # x 'y' "z
@a1.b1(c1=d1)
async def é(f1: 'g1' = ..., /, *, h1) -> i1[j1]: return k1 \
    + l1 and not m1 // n1 ** o1 != p1 is None
if q1:
	r1 = {'s1': [t1 for u1 in v1 if w1], **x1, 'y1''z1': f'{{a2}}{b2}', "c2\
d2": f"{e2}" f'f2'}  # after a tab
global g2; nonlocal h2;print(i2 , end = '' )
"""j2""" ; """\\""" ; '\\' ; 'k2\'l2' ; rb"""\"""" ; f'{m2:{n2}}' f"{'o2'}" f'{p2:%H:%M}' f"""{"'"}"""
)PY";

using Lines = std::vector<std::string>;

// Adds the same lines as kPythonsOwn prints. Tokens of an f-string's fields come after the f-string's own token and are inside it,
// so they are skipped.
void add_tokens(size_t number, const std::string& text, Lines& out) {
  const auto tokens = detail::scan::python_tokens(text);
  uint32_t end_of_text = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].begin < end_of_text || !(tokens.is_name(i) || tokens.is_text(i))) continue;
    if (tokens.is_text(i)) end_of_text = tokens[i].end();
    out.push_back(std::to_string(number) + (tokens.is_name(i) ? " N " : " T ") + std::to_string(tokens.begin(i)) + " " +
                  std::to_string(tokens[i].end()));
  }
}

}  // namespace

TEST_CASE("names and strings of Python sources are those that Python reads" *
          only_if(has_program("python3"), "there is no program python3")) {
  const TempDir dir;
  std::string crlf = kHard;
  for (size_t at = 0; (at = crlf.find('\n', at)) != std::string::npos; at += 2) crlf.replace(at, 1, "\r\n");
  put(dir / "hard.py", kHard);
  put(dir / "crlf.py", crlf);
  std::vector<std::string> words = {"python3", "-I", "-c", kPythonsOwn, (dir / "hard.py").string(), (dir / "crlf.py").string()};
  for (const auto* folder : {"tests/apps", "tests/tools/scan/projects/resnet_ddp"})
    for (const auto& entry : fs::directory_iterator(fs::path(NPU_TRAIN_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".py") words.push_back(entry.path().string());
  const auto python = run_command(words, {.deadline = std::nullopt, .max_output = size_t{64} << 20});
  REQUIRE_MESSAGE(python.ok(), python.output);
  Lines expected, got;
  std::istringstream printed(python.output);
  for (std::string line; std::getline(printed, line);) expected.push_back(line);
  for (size_t i = 4; i < words.size(); ++i) add_tokens(i - 4, read_file(words[i], 1 << 26), got);
  const auto [ours, theirs] = std::mismatch(got.begin(), got.end(), expected.begin(), expected.end());
  CHECK_MESSAGE(ours == got.end(), "only we read ", ours == got.end() ? "" : *ours);
  CHECK_MESSAGE(theirs == expected.end(), "only Python reads ", theirs == expected.end() ? "" : *theirs);
  CHECK(expected.size() > 10'000);
}
