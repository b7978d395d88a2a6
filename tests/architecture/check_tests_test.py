"""Plants each kind of test that cannot fail in a small file: scripts/check_tests must find it, and must find nothing in good tests."""
import importlib.machinery
import importlib.util
import sys
import tempfile
from pathlib import Path

LOADER = importlib.machinery.SourceFileLoader("check_tests", str(Path(__file__).resolve().parents[2] / "scripts/check_tests"))
check_tests = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_tests", LOADER))
sys.dont_write_bytecode = True
LOADER.exec_module(check_tests)

# HEAD, the beginning of each C++ file, has the declarations that every file may use. Below: part of a message -> tests in which it must be
# found.
HEAD = """#include "doctest.h"
Error error_of(Fn fn) { try { fn(); } catch (const Error& e) { return e; } FAIL("none"); return Error(); }
void check_both(int a) { CHECK(a == 1); }
bool loud(int a) { CHECK(a == 1); return true; }
"""
MISTAKES = {
    "no assertion that always runs in this case: none": [
        'TEST_CASE("a") { run(); }',
        'TEST_CASE("a") { run(); } TEST_CASE("b") { CHECK(x); }',
        'TEST_CASE("a") { const auto check = [&](int a) { CHECK(a); }; run(); }',
        'TEST_CASE("a") { struct Watch { void on() { CHECK(x); } }; run(); }',
        'TEST_CASE("a") { run("CHECK(x)"); /* CHECK(x) */ // CHECK(x)\n }',
        'TEST_CASE("a") { run(); WARN(x); MESSAGE("CHECK"); }',
        'TEST_CASE("a") { loud(1); }',
        'TEST_CASE_TEMPLATE("a", T, int, char) { run<T>(R"x(CHECK(a))x"); }'],
    "no assertion that always runs in this subcase": [
        'TEST_CASE("a") { CHECK(before); SUBCASE("good") { CHECK(x); } SUBCASE("bad") { run(); } }',
        'TEST_CASE("a") { SUBCASE("b") { SUBCASE("c") { run(); } SUBCASE("d") { CHECK(x); } CHECK(y); } SUBCASE("bad") { run(); } }'],
    "all in an `if`": [
        'TEST_CASE("a") { if (x) CHECK(y); }',
        'TEST_CASE("a") { if (x) { CHECK(y); } run(); }',
        'TEST_CASE("a") { try { run(); throw_it(); } catch (const Error& e) { ++n; CHECK(e.kind); } }'],
    "silent return": [
        'TEST_CASE("a") { if (!here) return; CHECK(x); }',
        'TEST_CASE("a") { CHECK(x); if (!here) { MESSAGE("skipped"); return; } CHECK(y); }',
        'TEST_CASE("a") { for (int i : all) { if (!here) return; CHECK(i); } }',
        'void check_it(int a) { if (!here) return; CHECK(a); } TEST_CASE("a") { check_it(1); }'],
    "swallowed": ['TEST_CASE("a") { CHECK_NOTHROW(error_of([&] { run(); })); }', 'TEST_CASE("a") { REQUIRE_NOTHROW(x = error_of(f)); }'],
    "constant": [
        'TEST_CASE("a") { CHECK(true); }', 'TEST_CASE("a") { REQUIRE_FALSE(false); }', 'TEST_CASE("a") { CHECK(1\'000 == 1000u); }',
        'TEST_CASE("a") { CHECK(x.y == x.y); }', 'TEST_CASE("a") { CHECK((x || true)); }', 'TEST_CASE("a") { CHECK("text"); }',
        'TEST_CASE("a") { CHECK_EQ(2, 2); }'],
    "hidden": [
        'TEST_CASE("a") { try { CHECK(x); REQUIRE(y); } catch (...) { } CHECK(z); }',
        'TEST_CASE("a") { try { run(); } catch (const Error& e) { CHECK(e.kind); } CHECK(z); }'],
    "always passes": ['TEST_CASE("a" * doctest::may_fail()) { CHECK(x); }', 'TEST_CASE("a" * doctest::skip()) { CHECK(x); }'],
}
PYTHON_MISTAKES = {
    "no assertion": ["run()", "if x: self.assertTrue(y)", "try: run()\n        except Error: self.assertTrue(y)", "self.result(3)"],
    "silent return": ["if not here: return\n        self.assertTrue(y)", "self.guarded()"],
    "constant": ["self.assertTrue(True)", "self.assertEqual(x.y, x.y)", "assert (x, 'why')", "self.assertIn(1, 2)"],
    "hidden": ["try: self.assertTrue(x)\n        except Exception: pass\n        self.assertTrue(y)",
               "try: self.assertTrue(x)\n        except: pass\n        self.assertTrue(y)"],
    "always passes": ["self.assertTrue(x)\n    def test_a(self): self.assertTrue(y)",
                      "self.assertTrue(x)\n    @unittest.skip('later')\n    def test_b(self): self.assertTrue(y)"],
}
GOOD = [
    'TEST_CASE("a" * only_if(here(), "nothing is here")) { CHECK(x); }',
    'TEST_CASE("a") { const auto check = [&](int a) { if (a > 1) { CHECK(a == b); return; } CHECK(a); }; check(1); }',
    'TEST_CASE("a") { error_of([&] { run(); }); }',
    'TEST_CASE("a") { SUBCASE("b") { x = 1; } SUBCASE("c") { x = 2; } check_both(x); }',
    'TEST_CASE("a") { run([&](int i) { if (i == 0) return; CHECK(i); }); }',
    'TEST_CASE("a") { if (x) { CHECK(y); } else { CHECK(z); } }',
    'TEST_CASE("a") { for (int i = 0; i < 3; ++i) { try { run(); } catch (const Error& e) { CHECK(e.kind); ++n; } } CHECK(n == 3); }',
    'TEST_CASE("a") { CHECK(draw(1) == draw(1)); CHECK(1 + x == 1); CHECK(\'"\' == x); }',
    'TEST_CASE("a") { if (x) { CHECK(why); return; } CHECK(z); }']
GOOD_PYTHON = ["self.checked(3)", "if x: self.assertTrue(y)\n        else: self.fail()", "with self.assertRaises(Error): run()",
               "if not here: self.skipTest('nothing is here')\n        self.assertTrue(y)", "self.assertEqual(draw(), draw())"]
IN_PYTHON = """import unittest
class Tests(unittest.TestCase):
    def checked(self, x): self.assertTrue(x)
    def result(self, x):
        self.assertTrue(x)
        return x
    {guarded}
    def test_a(self):
        {body}
"""


def self_test():
    guarded = "def guarded(self):\n        if not here: return\n        self.assertTrue(x)"
    planted = [(part, "a_test.cpp", HEAD + text) for part, texts in [*MISTAKES.items(), (None, GOOD)] for text in texts]
    planted += [(part, "a_test.py", IN_PYTHON.format(body=text, guarded=guarded if "guarded" in text else ""))
                for part, texts in [*PYTHON_MISTAKES.items(), (None, GOOD_PYTHON)] for text in texts]
    for part, name, text in planted:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tests").mkdir()
            (Path(folder) / "tests" / name).write_text(text)
            found = [*check_tests.check_cpp(Path(folder)), *check_tests.check_python(Path(folder))]
        if len(found) != (part is not None) or (part is not None and part not in found[0]):
            yield f"expected {part or 'nothing'}, found {found} in:\n{text}"


if __name__ == "__main__":
    problems = [*self_test()]
    print(*problems, f"{len(problems)} problems", sep="\n")
    sys.exit(1 if problems else 0)
