"""The README's lines that install the library, after the README's build, which is scripts/setup's target npu_train_programs."""
import os
import re
import shlex
import shutil

from programs import BIN, ProgramTest, SOURCE, main, run

BUILD = BIN.parent


def blocks(language):
    return re.findall(rf'^```{language}\n(.*?)^```', (SOURCE / 'README.md').read_text(), re.M | re.S)


def cached(name):
    return re.search(rf'^{name}:\w+=(.*)$', (BUILD / 'CMakeCache.txt').read_text(), re.M)[1]


class Install(ProgramTest):
    def test_what_scripts_train_builds_is_all_that_is_installed(self):
        setup = (SOURCE / 'scripts' / 'setup').read_text()
        self.assertIn('targets=(npu_train_programs)', setup)
        built = self.assertDone(run('ninja', '-C', BUILD, '-t', 'inputs', 'npu_train_programs')).splitlines()
        built = {os.path.realpath(BUILD / line) for line in built}
        copied = set()
        for script in BUILD.rglob('cmake_install.cmake'):
            if {'consumer', 'docs'} & set(script.relative_to(BUILD).parts): continue
            copied |= set(re.findall(rf'"({re.escape(str(BUILD))}/[^"]+\.(?:a|so[.\d]*)|{re.escape(str(BIN))}/[^"]+)"', script.read_text()))
        names = {os.path.basename(path) for path in copied}
        self.assertLessEqual({'train_app', 'npu_tool', 'libnpu_train.a'}, names)
        if cached('NPU_TRAIN_BUILD_BOTH') == 'ON': self.assertTrue(any(name.startswith('libnpu_train.so') for name in names), names)
        self.assertEqual({path for path in copied if os.path.realpath(path) not in built}, set())

    def test_the_lines_as_they_stand(self):
        install, configure = next(block for block in blocks('sh') if 'cmake --install' in block).splitlines()
        uses = next(block for block in blocks('cmake') if 'find_package(npu_train' in block)
        prefix, torch = self.dir / 'prefix', cached('Torch_DIR').removesuffix('/share/cmake/Torch')
        (self.dir / 'build').symlink_to(BUILD)
        project = self.dir / 'my_project'
        project.mkdir()
        (project / 'CMakeLists.txt').write_text(
            'cmake_minimum_required(VERSION 3.25)\nproject(mine LANGUAGES C CXX)\nadd_executable(my_program main.cpp)\n' + uses)
        (project / 'main.cpp').write_text('#include <npu_train/core/config_node.hpp>\n#include <iostream>\n'
                                          'int main() { std::cout << npu_train::to_yaml_line(npu_train::ConfigNode{{"a", 1}}); }\n')
        for line in (install, configure, 'cmake --build my_build'):
            words = shlex.split(line)
            given = [word.replace('/opt/npu_train', str(prefix)).replace('/path/to/libtorch', torch) for word in words]
            self.assertDone(run(*given, cwd=self.dir, timeout=900))
        self.assertEqual(self.assertDone(run(self.dir / 'my_build' / 'my_program')), '{a: 1}')
        self.assertIn('npu_train', self.assertDone(run(prefix / 'bin' / 'train_app', '--version')))
        self.assertTrue((prefix / 'share' / 'npu_train' / 'configs' / 'quickstart.yaml').is_file())
        shutil.rmtree(prefix)


if __name__ == '__main__': main()
