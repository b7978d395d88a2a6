"""scripts/get_headers with a small wheel on a local server that supports range requests, without pip."""
import contextlib
import http.server
import importlib.machinery
import importlib.util
import io
import re
import threading
import zipfile

from programs import ProgramTest, SOURCE, main


def script():
    loader = importlib.machinery.SourceFileLoader('get_headers', str(SOURCE / 'scripts' / 'get_headers'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    exec(loader.get_source(loader.name), module.__dict__)  # exec_module would leave a __pycache__ next to the script
    return module


def wheel(**more):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, text in {'torch/lib/libtorch.so': 'x' * 100_000, 'torch/include/torch/headeronly/version.h': '#define TORCH\n',
                           'torch/include/ATen/a.h': '// a\n', **more}.items(): archive.writestr(name, text)
    return out.getvalue()


@contextlib.contextmanager
def server(content, ranges=True):
    """Yields the address and a list of the bytes that were requested."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            first, last = map(int, re.fullmatch(r'bytes=(\d+)-(\d+)', self.headers['Range']).groups())
            part = content[first:last + 1] if ranges else content
            asked.append(len(part))
            self.send_response(206 if ranges else 200)
            self.send_header('Content-Length', str(len(part)))
            self.send_header('Content-Range', f'bytes {first}-{last}/{len(content)}')
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, *args): pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        try: yield f'http://127.0.0.1:{running.server_port}/torch.whl', asked
        finally: running.shutdown()


class Headers(ProgramTest):
    def get(self, content, ranges=True):
        """(exit status, folder, requested bytes) of a run with this wheel."""
        module, folder = script(), self.dir / 'torch'
        module.BLOCK = 1024
        with server(content, ranges) as (url, asked):
            module.wheels_of = lambda packages: [url]
            module.sys = type('sys', (), {'argv': ['get_headers', str(folder), 'torch==9.9.9'], 'stderr': io.StringIO()})
            with contextlib.redirect_stdout(io.StringIO()):
                return module.main(), folder, asked

    def test_only_the_headers_are_read(self):
        status, folder, asked = self.get(wheel())
        self.assertEqual(status, 0)
        self.assertEqual([p.name for p in folder.iterdir()], ['include'])
        self.assertEqual(sorted(str(p.relative_to(folder)) for p in folder.rglob('*.h')),
                         ['include/ATen/a.h', 'include/torch/headeronly/version.h'])
        self.assertEqual((folder / 'include/ATen/a.h').read_text(), '// a\n')
        self.assertLess(max(asked), 2000)
        before = len(asked)
        self.assertEqual(self.get(wheel())[2], [])  # the folder exists already
        self.assertGreater(before, 0)

    def test_a_name_that_leaves_the_folder_is_refused(self):
        with self.assertRaisesRegex(SystemExit, 'outside of its folder'): self.get(wheel(**{'torch/include/../../evil.h': 'x'}))
        self.assertEqual([p.name for p in self.dir.rglob('*') if p.is_file()], [])

    def test_a_damaged_wheel_leaves_nothing(self):
        content = bytearray(wheel())
        content[content.index(b'ATen/a.h') + len('ATen/a.h') + 1] ^= 0xff
        with self.assertRaises(Exception): self.get(bytes(content))
        self.assertEqual(list((self.dir / 'torch').iterdir()), [])

    def test_the_headers_of_several_packages_are_together_and_a_wheel_without_headers_is_an_error(self):
        module, folder = script(), self.dir / 'torch'
        nccl = io.BytesIO()
        with zipfile.ZipFile(nccl, 'w') as archive: archive.writestr('nvidia/nccl/include/nccl.h', '// nccl\n')
        empty = io.BytesIO()
        with zipfile.ZipFile(empty, 'w') as archive: archive.writestr('a/b.py', '')
        with server(wheel()) as (torch, _), server(nccl.getvalue()) as (other, _), server(empty.getvalue()) as (none, _):
            module.sys = type('sys', (), {'argv': ['get_headers', str(folder), 'torch==9.9.9', 'nvidia-nccl-cu13==1.2'], 'stderr': io.StringIO()})
            module.wheels_of = lambda packages: [torch, none]
            with contextlib.redirect_stdout(io.StringIO()), self.assertRaisesRegex(SystemExit, 'has no include folder'): module.main()
            self.assertEqual(list(folder.iterdir()), [])
            module.wheels_of = lambda packages: [torch, other]
            with contextlib.redirect_stdout(io.StringIO()): self.assertEqual(module.main(), 0)
        self.assertEqual((folder / 'include/nccl.h').read_text(), '// nccl\n')
        self.assertTrue((folder / 'include/ATen/a.h').exists())

    def test_a_server_without_ranges_and_one_that_is_not_there_are_a_skip(self):
        self.assertEqual(self.get(wheel(), ranges=False)[0], 77)
        module = script()
        module.wheels_of = lambda packages: ['http://127.0.0.1:9/torch.whl']
        module.sys = type('sys', (), {'argv': ['get_headers', str(self.dir / 'other'), 'torch==9.9.9'], 'stderr': io.StringIO()})
        self.assertEqual(module.main(), 77)
        self.assertIn('torch==9.9.9', module.sys.stderr.getvalue())


if __name__ == '__main__': main()
